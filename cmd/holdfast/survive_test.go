//go:build soak && linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
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
