//go:build soak && linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// guardOf returns the process id of a run's guard.
func guardOf(t *testing.T, run int) int {
	t.Helper()
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		args, _ := os.ReadFile(file)
		pid := filepath.Base(filepath.Dir(file))
		stat, _ := os.ReadFile(filepath.Join("/proc", pid, "stat"))
		_, rest, _ := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(rest); strings.HasPrefix(string(args), "holdfast-guard\x00") && len(fields) > 1 && fields[1] == itoa(run) {
			return atoi(t, pid)
		}
	}
	t.Fatalf("process %d has no guard", run)
	return 0
}

// TestKilledRunEndsDaemons: processes that have left the group and the session do not run beside the next
// holder either.
func TestKilledRunEndsDaemons(t *testing.T) {
	w := newWorld(t)
	file, next := w.path("stamps"), w.path("next")
	p := w.start("run", "--lock-delay", "2s", "x", "--", "tree", file)
	awaitStamps(t, treeFiles(file)...)
	waiter := w.start("run", "x", "--", "once", next)
	w.awaitQueue("x", 1)
	p.signal(syscall.SIGKILL)
	waiter.ends(0)
	goneBefore(t, next, treeFiles(file)...)
}

// TestKilledGuard: without a guard the command could survive run, so all its processes are killed, and
// only then is the name free.
func TestKilledGuard(t *testing.T) {
	w := newWorld(t)
	file, next := w.path("stamps"), w.path("next")
	p := w.start("run", "x", "--", "tree", file)
	awaitStamps(t, treeFiles(file)...)
	waiter := w.start("run", "x", "--", "once", next)
	w.awaitQueue("x", 1)
	if err := syscall.Kill(guardOf(t, p.cmd.Process.Pid), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.ends(128 + 9)
	waiter.ends(0)
	goneBefore(t, next, treeFiles(file)...)
}

// TestGuardOutlivesSignals: the command's group may get any signal, and the guard is in it. Without its
// guard the command would be killed.
func TestGuardOutlivesSignals(t *testing.T) {
	w := newWorld(t)
	p := w.start("run", "x", "--", "until", w.path("go"))
	p.awaitOutput("up")
	guard := guardOf(t, p.cmd.Process.Pid)
	for s := syscall.Signal(1); s <= 64; s++ {
		switch s {
		case syscall.SIGKILL, syscall.SIGSTOP:
			continue
		case 32, 33, 34: // the C library's own
			continue
		}
		if err := syscall.Kill(guard, s); err != nil {
			t.Fatalf("signal %d to the guard: %v", s, err)
		}
	}
	w.run(75, "run", "-n", "x", "--", "true") // time for the guard to end, if it did
	if err := os.WriteFile(w.path("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.ends(0)
}

// TestWithoutProc: where /proc is missing, as in a bare chroot, run finds its own program for the guard by
// PATH.
func TestWithoutProc(t *testing.T) {
	w := newContainerWorld(t)
	w.env = append(w.env, "HOLDFAST_STORE=sqlite://"+filepath.Join(w.path("data"), "locks.db"))
	p := w.container("umount -l /proc", "holdfast", "run", "x", "--", "sh", "-c", "echo ran; exit 7").start()
	p.ends(7)
	p.expectOut("ran")
}

// TestGuardHasAName: ps and killall know the guard by its name.
func TestGuardHasAName(t *testing.T) {
	w := newWorld(t)
	p := w.start("run", "x", "--", "until", w.path("go"))
	p.awaitOutput("up")
	comm, err := os.ReadFile(filepath.Join("/proc", itoa(guardOf(t, p.cmd.Process.Pid)), "comm"))
	if name := strings.TrimSpace(string(comm)); err != nil || name != "holdfast-guard" {
		t.Errorf("the guard is called %q (%v)", name, err)
	}
	if err := os.WriteFile(w.path("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.ends(0)
}

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
