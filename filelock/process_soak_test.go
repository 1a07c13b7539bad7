//go:build soak && (linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

func init() { childModes["change"] = change }

// change is a child that changes two records for ever.
func change(dir string) error {
	d, err := Open(context.Background(), Options{Dir: dir})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	requests := []driver.Request{request("short"), request("long")}
	for i := range requests {
		requests[i].TTL, requests[i].Mode = 10*time.Millisecond, driver.Shared
		requests[i].Note = strings.Repeat("n", pageSize-textStart-400+i*500)
	}
	for n := 1; ; n++ {
		r := &requests[n%10/9] // the short one takes less time
		r.Owner = strconv.Itoa(n)
		g, err := d.Try(context.Background(), *r)
		if err != nil {
			return err
		}
		if err := d.Release(context.Background(), []driver.Grant{g})[0]; err != nil && !driver.Gone(err) {
			return err
		}
		if n%1000 == 0 {
			fmt.Println("and on")
		}
	}
}

func TestKilledHolderFreesAtOnce(t *testing.T) {
	dir := t.TempDir()
	c, p := openTest(t, dir), obeying(t, dir)
	p.ask("ok", "try x 1m 0s")
	if _, err := c.Try(t.Context(), request("x")); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("P1: Try of a name held by another process: %v", err)
	}
	waiting := granted(t, c, request("x"))
	p.kill()
	soon(t, "the holder was killed", waiting)
	p = obeying(t, dir)
	p.ask("ok", "try y 1m 0s")
	p.kill()
	free(t, c, "y", "the holder was killed")
}

// TestStoppedInsideAnOperation: a process that stands still with the record locked
// closes the name neither for others nor for good, and its change does not
// count once others have gone on without it.
func TestStoppedInsideAnOperation(t *testing.T) {
	dir := t.TempDir()
	c, p := openTest(t, dir), obeying(t, dir)
	free(t, c, "x", "a new name")
	p.ask("inside", "operate x") // which finds the name free
	start := time.Now()
	g, err := c.Try(t.Context(), request("x"))
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < stuckAfter || took > 2*poll {
		t.Errorf("P7: a process stopped with the record locked delayed others by %v", took)
	}
	p.ask("held", "goon")
	if r := c.Renew(t.Context(), []driver.Grant{g})[0]; r.Err != nil {
		t.Errorf("P1: a process that was stopped inside an operation took the hold away: %v", r.Err)
	}
	must(t, c.Release(t.Context(), []driver.Grant{g})[0], c.Close())
	if files, _ := filepath.Glob(filepath.Join(dir, namesName, "*")); len(files) != 0 {
		t.Errorf("P9: files are left: %q", files)
	}
}

// TestPausedInsideAnOperation: what the stopped process did does count if it
// went on before others lost patience.
func TestPausedInsideAnOperation(t *testing.T) {
	dir := t.TempDir()
	c, p := openTest(t, dir), obeying(t, dir)
	free(t, c, "x", "a new name")
	p.ask("inside", "operate x")
	time.AfterFunc(stuckAfter/4, func() { p.tell("go on") })
	if _, err := c.Try(t.Context(), request("x")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("P1: Try after another process got the hold: %v", err)
	}
	p.expect("ok")
	p.ask("ok", "renew")
}

// TestKilledWhileWriting kills processes that do nothing but change a record, of a bit less
// than a page and of more: the record must be believable each time.
func TestKilledWhileWriting(t *testing.T) {
	dir := t.TempDir()
	c := attachTest(t, dir)
	changes := 0
	for i := range 40 {
		p := spawn(t, "change", dir, nil)
		p.expect("ready")
		for range i % 10 {
			p.expect("and on")
			changes++
		}
		p.kill()
		for _, name := range []string{"short", "long"} {
			if err := c.change(t.Context(), name, func(*operation) error { return nil }); err != nil {
				t.Fatalf("P1: after a kill: %v", err)
			}
		}
	}
	t.Logf("%d thousand changes", changes)
}

// TestFileSizeLimit: a process that may not write a page writes nothing.
func TestFileSizeLimit(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	must(t, err)
	free(t, openTest(t, dir), "x", "a new name")
	p := &child{t: t, cmd: exec.Command("sh", "-c", `ulimit -f 1; exec "$0"`, self)}
	p.start(childEnv + "=obey:" + dir)
	if text := p.expect("failed:"); !strings.Contains(text, "ulimit -f") {
		t.Errorf("a process that may not write a page was told %q", text)
	}
}

// TestNothingIsInherited: a program started by a holder has none of its
// descriptors, and does not keep the holder alive.
func TestNothingIsInherited(t *testing.T) {
	dir := t.TempDir()
	c, p := openTest(t, dir), obeying(t, dir)
	p.ask("ok", "try x 1m 0s")
	p.ask("held", "try x 1m 0s") // and again, so that its record is kept open
	pid := p.ask("pid", "spawn")
	id, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(id, syscall.SIGKILL)
	p.kill()
	free(t, c, "x", "the holder was killed, what it started lives on")
}
