//go:build soak && linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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
