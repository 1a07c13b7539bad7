//go:build soak && linux

package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

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
