//go:build soak && linux

package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

func TestCtrlC(t *testing.T) {
	w := newWorld(t)
	c := w.onTerminal(80, "holdfast", "run", "x", "--", "until", w.path("never"))
	c.awaitTimes(1, "up")
	c.types(ctrlC)
	c.ends(128 + 2)
	w.run(0, "run", "-n", "x", "--", "true")
}

func TestCtrlCWhileWaiting(t *testing.T) {
	w := newWorld(t)
	defer w.hold("x", "--note", "somebody")()
	c := w.onTerminal(80, "holdfast", "run", "x", "--", "true")
	c.awaitTimes(1, `holdfast: waiting: lock "x" is held by another ("somebody"`)
	c.types(ctrlC)
	c.ends(128 + 2)
	w.awaitQueue("x", 0)
}

func TestCommandReadsTheTerminal(t *testing.T) {
	w := newWorld(t)
	c := w.onTerminal(80, "holdfast", "run", "x", "--", "sh", "-c", `read line; echo "read $line"; exit 3`)
	c.types("hello\n")
	c.ends(3)
	c.expectOut("read hello")
}

func TestTerminalIsSetAsBefore(t *testing.T) {
	w := newWorld(t)
	c := w.onTerminal(80, "holdfast", "--store", w.cutURL(), "run", "--ttl", lossTTL, "x", "--", "sh", "-c", `stty raw -echo; trap "" TERM; sleep 1000`)
	// Kept open: a terminal loses its settings when its last user closes it.
	kept, err := os.OpenFile(ptsName(t, c), unix.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	fd := int(kept.Fd())
	await(t, "raw mode", func() bool { return !echoes(t, fd) })
	w.cut()
	await(t, "the old mode", func() bool { return echoes(t, fd) })
	kept.Close()
	c.ends(76)
}

func ptsName(t *testing.T, c *console) string {
	t.Helper()
	conn, err := c.tty.SyscallConn() // Fd would make a read of it block its Close
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if failed := conn.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN) }); failed != nil || err != nil {
		t.Fatal(failed, err)
	}
	return "/dev/pts/" + itoa(n)
}

func echoes(t *testing.T, fd int) bool {
	t.Helper()
	mode, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return mode.Lflag&unix.ECHO != 0 && mode.Lflag&unix.ICANON != 0
}

// TestCtrlZ: Ctrl-Z does not stop a command under a lock.
func TestCtrlZ(t *testing.T) {
	w := newWorld(t)
	file := w.path("stamps")
	c := w.onTerminal(80, "holdfast", "run", "x", "--", "stamp", file)
	awaitStamps(t, file)
	c.types(ctrlZ)
	c.awaitTimes(1, "^Z")
	after := nowStamp()
	await(t, "the command to go on", func() bool { return stamped(file) > after })
}

// TestCtrlZInAPipeline: neither does the rest of the pipeline stop.
func TestCtrlZInAPipeline(t *testing.T) {
	w := newWorld(t)
	file := w.path("go")
	c := w.shell()
	c.enter("holdfast run x -- until " + file + " | cat; echo rc=${PIPESTATUS[0]}")
	c.awaitTimes(1, "up\r\n")
	c.types(ctrlZ)
	c.awaitTimes(1, "^Z")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.awaitTimes(1, "rc=0")
	c.enter("exit")
	c.wait()
}

// TestBackgroundJobReadsTheTerminal: a command of a background job gets the terminal when its job does.
func TestBackgroundJobReadsTheTerminal(t *testing.T) {
	w := newWorld(t)
	c := w.shell()
	c.enter("holdfast run x -- sh -c 'echo u''p; cat; echo en''d' &")
	c.awaitTimes(1, "up\r\n")
	c.enter("fg")
	c.talk("hello")
	c.types(ctrlD)
	c.awaitTimes(1, "end")
	c.enter("exit")
	c.ends(0)
}

// In a pipeline the others have the terminal too, until the command needs it.
func TestPipeline(t *testing.T) {
	w := newWorld(t)
	c := w.shell()
	c.enter("holdfast run x -- cat | sed -u s/^/passed/")
	c.talk("hello")
	c.awaitTimes(1, "passedhello")
	c.types(ctrlD)
	c.enter("holdfast run x -- until " + w.path("never") + " | cat; echo rc=${PIPESTATUS[0]}")
	c.awaitTimes(1, "up\r\n")
	c.types(ctrlC)
	c.enter("echo shell al''ive")
	c.awaitTimes(1, "shell alive")
	w.run(0, "run", "-w", "1m", "x", "--", "true")
	c.enter("exit")
	c.wait()
}

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
