//go:build soak && (linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package filelock

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

func TestKilledHolderFreesAtOnce(t *testing.T) {
	dir := t.TempDir()
	c, p := openTest(t, dir), obeying(t, dir)
	p.Ask("ok", "try x 1m 0s")
	if _, err := c.Try(t.Context(), request("x")); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("P1: Try of a name held by another process: %v", err)
	}
	waiting := granted(t, c, request("x"))
	p.Kill()
	soon(t, "the holder was killed", waiting)
	p = obeying(t, dir)
	p.Ask("ok", "try y 1m 0s")
	p.Kill()
	free(t, c, "y", "the holder was killed")
}

// TestStoppedInsideAnOperation: a process that stands still with the record locked
// closes the name neither for others nor for good, and its change does not
// count once others have gone on without it.
func TestStoppedInsideAnOperation(t *testing.T) {
	dir := t.TempDir()
	c, p := openTest(t, dir), obeying(t, dir)
	free(t, c, "x", "a new name")
	p.Ask("inside", "operate x") // which finds the name free
	start := time.Now()
	g, err := c.Try(t.Context(), request("x"))
	must(t, err)
	if took := time.Since(start); took < stuckAfter || took > 2*poll {
		t.Errorf("P7: a process stopped with the record locked delayed others by %v", took)
	}
	p.Ask("held", "goon")
	if r := c.Renew(t.Context(), []driver.Grant{g})[0]; r.Err != nil {
		t.Errorf("P1: a process that was stopped inside an operation took the hold away: %v", r.Err)
	}
	must(t, c.Release(t.Context(), []driver.Grant{g})[0], c.Close())
	if files, _ := filepath.Glob(filepath.Join(dir, namesName, "*")); len(files) != 0 {
		t.Errorf("P9: files are left: %q", files)
	}
}

// TestFileSizeLimit: a process that may not write a page writes nothing.
func TestFileSizeLimit(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	must(t, err)
	free(t, openTest(t, dir), "x", "a new name")
	p := testserver.StartChildBy(t, exec.Command("sh", "-c", `ulimit -f 1; exec "$0" "$@"`, self), "obey", dir)
	if text := p.Expect("failed:"); !strings.Contains(text, "ulimit -f") {
		t.Errorf("a process that may not write a page was told %q", text)
	}
}

// TestNothingIsInherited: a program started by a holder has none of its
// descriptors, and does not keep the holder alive.
func TestNothingIsInherited(t *testing.T) {
	dir := t.TempDir()
	c, p := openTest(t, dir), obeying(t, dir)
	p.Ask("ok", "try x 1m 0s")
	p.Ask("held", "try x 1m 0s") // and again, so that its record is kept open
	pid := p.Ask("pid", "spawn")
	id, err := strconv.Atoi(pid)
	must(t, err)
	defer syscall.Kill(id, syscall.SIGKILL)
	p.Kill()
	free(t, c, "x", "the holder was killed, what it started lives on")
}
