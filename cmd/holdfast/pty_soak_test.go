//go:build soak && linux

package main

import (
	"os"
	"testing"

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
