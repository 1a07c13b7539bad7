//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

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

func TestCtrlC(t *testing.T) {
	w := newWorld(t)
	c := w.onTerminal(80, "holdfast", "run", "x", "--", "until", w.path("never"))
	c.awaitTimes(1, "up")
	c.types(ctrlC)
	c.ends(128 + 2)
	w.run(0, "run", "-n", "x", "--", "true")
}

func TestCtrlCTwice(t *testing.T) {
	w := newWorld(t)
	c := w.onTerminal(80, "holdfast", "run", "x", "--", "signals")
	c.awaitTimes(1, "up")
	c.types(ctrlC)
	c.awaitTimes(1, "interrupt\r\n")
	w.run(75, "run", "-n", "x", "--", "true")
	c.types(ctrlC)
	c.awaitTimes(2, "interrupt\r\n")
	c.signal(syscall.SIGTERM)
	c.awaitTimes(1, "terminated")
	c.signal(syscall.SIGTERM)
	c.ends(5)
	// The command got each signal once, and not a second time through run.
	if n := strings.Count(c.out.String(), "interrupt\r\n"); n != 2 {
		t.Errorf("two Ctrl-C came as %d", n)
	}
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

func TestTerminalGoes(t *testing.T) {
	w := newWorld(t)
	file := w.path("term")
	c := w.onTerminal(80, "holdfast", "run", "x", "--", "sh", "-c", `trap 'echo hup >"$0"; exit 1' HUP; echo up; while :; do sleep 0.01; done`, file)
	c.awaitTimes(1, "up")
	c.tty.Close()
	await(t, "SIGHUP", func() bool { _, err := os.Stat(file); return err == nil })
	w.run(0, "run", "-w", "1m", "x", "--", "true")
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

// stops presses Ctrl-Z, and waits until the shell says that the job has stopped, and no cat of the session
// runs. Suppose a cat that reads the terminal has not stopped yet when the shell does: it then takes what
// is typed next.
func (c *console) stops() {
	c.t.Helper()
	c.types(ctrlZ)
	c.awaitTimes(1, "Stopped")
	await(c.t, "cat to stop", func() bool {
		files, err := filepath.Glob("/proc/[0-9]*/stat")
		if err != nil {
			c.t.Fatal(err)
		}
		return !slices.ContainsFunc(files, func(file string) bool {
			stat, _ := os.ReadFile(file)
			_, rest, cat := strings.Cut(string(stat), " (cat) ")
			fields := strings.Fields(rest) // state, parent, group, session
			return cat && fields[3] == itoa(c.cmd.Process.Pid) && fields[0] != "T"
		})
	})
}

func TestCtrlZ(t *testing.T) {
	w := newWorld(t)
	c := w.shell()
	c.enter("holdfast run x -- sh -c 'echo u''p; cat; echo en''d'")
	c.awaitTimes(1, "up")
	c.talk("one")
	c.stops()
	c.expectOut("holdfast: stopped: the command is killed if it is not continued within 29")
	c.enter("echo the shell is he''re")
	c.awaitTimes(1, "here")
	w.run(75, "run", "-n", "x", "--", "true")
	c.enter("fg")
	c.awaitTimes(3, "holdfast run x") // typed, stopped, continued
	c.talk("two")
	c.types(ctrlD)
	c.awaitTimes(1, "end")
	c.enter("echo rc=$?")
	c.awaitTimes(1, "rc=0")
	c.enter("exit")
	c.ends(0)
}

func TestCtrlZWhileWaiting(t *testing.T) {
	w := newWorld(t)
	end := w.hold("x")
	c := w.shell()
	c.enter("holdfast run x -- echo got i''t")
	w.awaitQueue("x", 1)
	c.types(ctrlZ)
	c.awaitTimes(1, "Stopped")
	c.enter("fg")
	c.awaitTimes(3, "holdfast run x")
	end()
	c.awaitTimes(1, "got it")
	c.enter("exit")
	c.ends(0)
}

func TestCtrlZInAPipeline(t *testing.T) {
	w := newWorld(t)
	file := w.path("go")
	c := w.shell()
	c.enter("holdfast run x -- until " + file + " | cat; echo rc=${PIPESTATUS[0]}")
	c.awaitTimes(1, "up\r\n")
	c.types(ctrlZ)
	c.awaitTimes(1, "Stopped")
	c.enter("fg")
	c.awaitTimes(3, "holdfast run x")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.run(0, "run", "-w", "1m", "x", "--", "true")
	c.enter("exit")
	c.wait()
}

func TestCtrlZForTooLong(t *testing.T) {
	w := newWorld(t)
	file, next := w.path("stamps"), w.path("next")
	c := w.shell()
	c.enter("holdfast run --ttl " + lossTTL + " x -- tree " + file)
	awaitStamps(t, treeFiles(file)...)
	c.types(ctrlZ)
	c.awaitTimes(1, "Stopped")
	w.run(0, "run", "-w", "1m", "x", "--", "once", next)
	goneBefore(t, next, treeFiles(file)...)
	c.enter("fg")
	c.awaitTimes(1, "the command was killed")
	c.enter("echo rc=$?")
	c.awaitTimes(1, "rc=76")
	c.enter("exit")
	c.ends(0)
}

func TestCtrlZWithoutAShell(t *testing.T) {
	w := newWorld(t)
	file := w.path("stamps")
	c := w.onTerminal(80, "holdfast", "run", "x", "--", "stamp", file)
	awaitStamps(t, file)
	c.types(ctrlZ)
	c.awaitTimes(1, "^Z")
	after := nowStamp()
	await(t, "the command to go on, as nobody could continue it", func() bool { return stamped(file) > after })
}

func TestNestedCtrlZ(t *testing.T) {
	w := newWorld(t)
	c := w.shell()
	c.enter("holdfast run a -- sh -c 'holdfast run b -- sh -c \"echo u''p; cat\"; echo aft''er'")
	c.awaitTimes(1, "up")
	c.talk("one")
	c.stops()
	c.enter("fg")
	c.awaitTimes(3, "holdfast run a")
	c.talk("two")
	c.types(ctrlD)
	c.awaitTimes(1, "after")
	c.enter("exit")
	c.ends(0)
}

func TestBackgroundJobReadsTheTerminal(t *testing.T) {
	w := newWorld(t)
	c := w.shell()
	c.enter("holdfast run x -- sh -c 'cat; echo en''d' &")
	await(t, "the job to stop", func() bool {
		c.enter("jobs")
		return strings.Contains(c.out.String(), "Stopped")
	})
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

func TestWidths(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("long/", 20) + "name"
	defer w.hold(long, "--note", strings.Repeat("note ", 20))()
	defer w.hold("häuser/日本", "--shared")()
	full := w.run(0, "ls").out.String()
	if !strings.Contains(full, long) || !strings.Contains(full, "WAITING") {
		t.Errorf("a pipe gets less than everything:\n%s", full)
	}
	for _, columns := range []uint16{20, 40, 80, 120, 300} {
		for _, args := range [][]string{{"ls"}, {"show", long}} {
			c := w.onTerminal(columns, "holdfast", args...)
			c.ends(0)
			out := c.out.String()
			for line := range strings.Lines(out) {
				line = strings.TrimRight(line, "\r\n")
				if n := utf8.RuneCountInString(line); n > int(columns) && args[0] == "ls" {
					t.Errorf("%d columns: a line has %d: %q", columns, n, line)
				}
			}
			if strings.Contains(out, "\x1b") {
				t.Errorf("there are escape sequences: %q", out)
			}
			if columns == 40 && args[0] == "ls" && !strings.Contains(out, "…") {
				t.Errorf("%d columns: nothing is cut:\n%s", columns, out)
			}
			if columns == 300 && args[0] == "ls" && strings.ReplaceAll(out, "\r", "") == "" {
				t.Error("nothing at all")
			}
		}
	}
	w.env = append(w.env, "NO_COLOR=1", "TERM=xterm-256color")
	for _, args := range [][]string{{"ls"}, {"doctor"}, {"--help"}, {"run", "--help"}} {
		if c := w.onTerminal(80, "holdfast", args...); c.wait() != 0 || strings.Contains(c.out.String(), "\x1b") {
			t.Errorf("%v: %q", args, c.out.String())
		}
	}
}

// TestDemoEndsWithAVerdict: on a terminal the demonstration ends with a coloured sentence; with -q it draws
// no bar, and with NO_COLOR no colours.
func TestDemoEndsWithAVerdict(t *testing.T) {
	w := newWorld(t)
	args := []string{"demo", "lock", "--users", "5", "--services", "2", "--repeats", "1"}
	c := w.onTerminal(80, "holdfast", args...)
	c.ends(0)
	screen := c.out.String()
	if !strings.HasSuffix(screen, "\x1b[1;32mNothing went wrong: lock.\x1b[0m\r\n") || !strings.Contains(screen, "] lock, run 1") {
		t.Errorf("the screen: %q", screen)
	}
	w.env = append(w.env, "NO_COLOR=1")
	quiet := w.onTerminal(80, "holdfast", append(args, "-q")...)
	quiet.ends(0)
	if screen := quiet.out.String(); strings.Contains(screen, "\x1b") || !strings.HasSuffix(screen, "\nNothing went wrong: lock.\r\n") {
		t.Errorf("with -q and NO_COLOR: %q", screen)
	}
}

// TestQuietOnATerminal: with -q run does not say that it waits.
func TestQuietOnATerminal(t *testing.T) {
	w := newWorld(t)
	defer w.hold("x")()
	c := w.onTerminal(80, "holdfast", "run", "-q", "-w", "1s", "x", "--", "true")
	c.ends(75)
	if c.out.String() != "" {
		t.Errorf("it wrote %q", c.out.String())
	}
}
