//go:build soak && linux

package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fullPipe returns a pipe that takes nothing more, and from which nobody reads.
func fullPipe(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	fd := int(w.Fd())
	if err := syscall.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = syscall.Write(fd, make([]byte, 4096))
	}
	if err := syscall.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	return w
}

// TestNobodyReadsTheErrors: a run whose standard error is a full pipe kills its command and ends when its
// lock is lost, with the exit code of a loss.
func TestNobodyReadsTheErrors(t *testing.T) {
	w := newWorld(t)
	file, next := w.path("stamps"), w.path("next")
	p := w.command("run", "--ttl", lossTTL, "--grace", "1s", "--max-hold", "1s", "x", "--", "tree", file)
	p.cmd.Stderr = fullPipe(t)
	p.start()
	awaitStamps(t, treeFiles(file)...)
	waiter := w.start("run", "x", "--", "once", next)
	p.ends(76)
	waiter.ends(0)
	goneBefore(t, next, treeFiles(file)...)
}

// TestNobodyReadsTheErrorsOfTheGuard: the guard of such a run kills the command when the run is killed.
func TestNobodyReadsTheErrorsOfTheGuard(t *testing.T) {
	w := newWorld(t)
	file := w.path("stamps")
	p := w.command("run", "--ttl", lossTTL, "x", "--", "stamp", file)
	p.cmd.Stderr = fullPipe(t)
	p.start()
	awaitStamps(t, file)
	p.signal(syscall.SIGKILL)
	w.run(0, "run", "x", "--", "once", w.path("next"))
	goneBefore(t, w.path("next"), file)
}

// TestErrorsThatAreReadLate: what fits is there when it is read.
func TestErrorsThatAreReadLate(t *testing.T) {
	w := newWorld(t)
	r, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := w.command("run", "--ttl", lossTTL, "--max-hold", "1s", "x", "--", "sleep", "100")
	p.cmd.Stderr = pipe
	p.start()
	pipe.Close()
	p.ends(76)
	text := make([]byte, 1<<16)
	r.SetReadDeadline(time.Now().Add(timeLimit))
	n, err := r.Read(text)
	if said := string(text[:n]); err != nil || !strings.Contains(said, "is not renewed any more") || !strings.Contains(said, "the command ended with exit code") {
		t.Errorf("%v: it said %q", err, said)
	}
}
