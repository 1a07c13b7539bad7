//go:build linux

package main

import (
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// console is a process on a terminal of its own.
type console struct {
	*process
	tty     *os.File // the keyboard and the screen
	prompts int      // of a shell: how many there have been when it reads the next line
}

// onTerminal starts a program as the leader of a session on a new terminal.
func (w *world) onTerminal(columns uint16, program string, args ...string) *console {
	w.t.Helper()
	c := &console{process: w.command(args...)}
	if program != "holdfast" {
		path, err := exec.LookPath(program)
		if err != nil {
			w.t.Fatal(err)
		}
		c.cmd.Path, c.cmd.Args = path, append([]string{program}, args...)
	}
	c.cmd.Stdout, c.cmd.Stderr = nil, nil
	master, err := pty.StartWithSize(c.cmd, &pty.Winsize{Rows: 24, Cols: columns})
	if err != nil {
		w.t.Fatal(err)
	}
	// A descriptor that does not block, so that its Close ends a Read.
	fd, err := unix.FcntlInt(master.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	master.Close()
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	tty := os.NewFile(uintptr(fd), "terminal")
	c.tty = tty
	read := make(chan struct{})
	go func() {
		defer close(read)
		buf := make([]byte, 4096)
		for {
			n, err := tty.Read(buf)
			c.out.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	go func() {
		c.cmd.Wait()
		<-read
		close(c.done)
	}()
	w.t.Cleanup(func() {
		c.cmd.Process.Kill()
		tty.Close()
		<-c.done
	})
	return c
}

// types writes on the keyboard.
func (c *console) types(text string) {
	c.t.Helper()
	if _, err := c.tty.WriteString(text); err != nil {
		c.t.Fatal(err)
	}
}

// awaitTimes waits until a text has been on the screen so many times.
func (c *console) awaitTimes(n int, text string) {
	c.t.Helper()
	defer func() {
		if c.t.Failed() {
			c.t.Logf("the screen:\n%s", c.out.String())
		}
	}()
	await(c.t, text+" on the screen", func() bool { return strings.Count(c.out.String(), text) >= n })
}

// The keys. Before one is pressed the command must run. It must not be a shell that is about to start
// another program: a shell ignores the keys for a moment then.
const (
	ctrlC = "\x03"
	ctrlD = "\x04"
	ctrlZ = "\x1a"
)

// shell starts an interactive shell with job control.
func (w *world) shell() *console {
	w.t.Helper()
	c := w.onTerminal(200, "bash", "--norc", "--noprofile", "-i")
	c.types("bind 'set enable-bracketed-paste off'; PS1='ne''xt> '\n")
	c.prompts = 1
	return c
}

// enter types a line when the shell is ready for it: what is typed while the
// shell takes the terminal back may be lost.
func (c *console) enter(line string) {
	c.t.Helper()
	c.awaitTimes(c.prompts, "next> ")
	c.prompts++
	c.types(line + "\n")
}

// talk types a line to cat, which repeats it. Input may be lost while the terminal changes its foreground
// group, so the line is typed again.
func (c *console) talk(line string) {
	c.t.Helper()
	before, said := strings.Count(c.out.String(), line), time.Time{}
	await(c.t, "an answer to "+line, func() bool {
		if time.Since(said) > time.Second {
			said = time.Now()
			c.types(line + "\n")
		}
		return strings.Count(c.out.String(), line) >= before+2
	})
}
