//go:build soak && (linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// TestInspectLeavesNoTrace: opening, listing and inspecting make, change and
// delete nothing, whatever there is to do.
func TestInspectLeavesNoTrace(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there")
	look := func(what string, dir, name string, check func(driver.Info) bool) {
		t.Helper()
		above := filepath.Dir(filepath.Dir(dir))
		before := snapshot(t, above)
		d, err := Open(t.Context(), Options{Dir: dir})
		must(t, err)
		c := d.(*client)
		info, err := c.Inspect(t.Context(), name)
		if err != nil || !check(info) {
			t.Errorf("%s: Inspect returned %+v, %v", what, info, err)
		}
		listed := false
		for info, err := range c.List(t.Context(), "") {
			must(t, err)
			listed = listed || info.Name == name
		}
		if listed == info.Idle() {
			t.Errorf("%s: %q is listed: %v; Inspect says %+v", what, name, listed, info)
		}
		must(t, c.Close())
		unchanged(t, above, before, what+": looking")
	}
	idle := func(i driver.Info) bool { return i.Idle() }
	look("a directory that does not exist", dir, "x", idle)
	must(t, os.MkdirAll(dir, 0o700))
	look("an empty directory", dir, "x", idle)

	p := obeying(t, dir)
	p.Ask("ok", "try x 1m 0s")
	look("a hold", dir, "x", func(i driver.Info) bool { return len(i.Holders) == 1 })
	p.Ask("ok", "try delayed 1m 1m")
	p.Ask("ok", "try expired 10ms 0s")
	q := obeying(t, dir)
	q.Ask("held", "queue x")
	look("a waiter", dir, "x", func(i driver.Info) bool { return len(i.Holders) == 1 && len(i.Waiters) == 1 })
	time.Sleep(10 * time.Millisecond)
	look("an expired hold", dir, "expired", idle)
	p.Kill()
	look("the hold of a killed client", dir, "x", func(i driver.Info) bool { return len(i.Holders) == 0 && len(i.Waiters) == 1 })
	look("a lock-delay", dir, "delayed", func(i driver.Info) bool { return len(i.Holders) == 0 && i.ClosedFor > 0 })
	q.Kill()
	look("a killed waiter", dir, "x", idle)
	reboot(t, dir)
	look("another boot", dir, "delayed", func(i driver.Info) bool { return len(i.Holders) == 0 && i.ClosedFor > 0 })
	names, err := openFolder(nil, filepath.Join(dir, namesName))
	must(t, err)
	defer names.close()
	halfMove(t, names, "delayed")
	look("a record that is being moved", dir, "delayed", func(i driver.Info) bool { return len(i.Holders) == 0 && i.ClosedFor > 0 })
}

// halfMove leaves a record as a thief does that dies at its work.
func halfMove(t testing.TB, names *folder, name string) {
	t.Helper()
	path := names.at(fileName(name))
	temp, err := names.prepare(appendHeader(nil, moving, textStart, nil))
	must(t, err, os.Link(path, path+oldSuffix), os.Rename(names.at(temp), path))
}

// TestReboot: what was held before a reboot is free or closed for its
// lock-delay or minimum hold, times of the other boot mean nothing, and torn records are gone.
func TestReboot(t *testing.T) {
	dir := t.TempDir()
	p := obeying(t, dir)
	token := p.Ask("ok", "try plain 1m 0s")
	p.Ask("ok", "try delayed 1m 400ms")
	p.Ask("ok", "try lasting 1m 0s 400ms")
	p.Ask("ok", "try torn 1m 0s")
	must(t, os.Truncate(filepath.Join(dir, namesName, "torn.lock"), 0))
	// A hold that the other boot closed for long, at an instant far ahead.
	far := state{name: "far"}
	far.Holds = full().Holds[2:]
	far.Holds[0].Request = request("far")
	far.Holds[0].LockDelay, far.Holds[0].Expires = 400*time.Millisecond, maxInstant
	must(t, os.WriteFile(filepath.Join(dir, namesName, "far.lock"), recordBytes(&far), 0o600))
	reboot(t, dir)

	c := openTest(t, dir)
	if err := c.attach(t.Context()); err == nil || !strings.Contains(err.Error(), "another boot") {
		t.Fatalf("using a directory that a living client uses on another boot: %v", err)
	}
	if _, err := c.Inspect(t.Context(), "plain"); err == nil || !strings.Contains(err.Error(), "another boot") {
		t.Fatalf("looking into a directory that a living client uses on another boot: %v", err)
	}
	p.Kill()
	start := time.Now()
	g, err := c.Try(t.Context(), request("plain"))
	if err != nil {
		t.Errorf("P5: the hold of another boot is in the way: %v", err)
	}
	if fmt.Sprint(g.Token) <= token {
		t.Errorf("P3: token %d after %s of another boot", g.Token, token)
	}
	free(t, c, "torn", "its record was torn by the power cut")
	closed := []string{"delayed", "lasting", "far"}
	var arrivals []<-chan time.Time
	for _, name := range closed {
		if _, err := c.Try(t.Context(), request(name)); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("the delay of %s was not kept over the reboot: %v", name, err)
		}
	}
	for _, name := range closed {
		arrivals = append(arrivals, arrival(t, c, request(name)))
	}
	for _, arrived := range arrivals {
		at := <-arrived
		if at.Sub(start) > 400*time.Millisecond+2*poll {
			t.Errorf("P5: a lock-delay of 400ms was over %v after the reboot", at.Sub(start))
		}
	}
}

// TestThiefDied: whoever finds a record that a thief did not finish to move
// finishes it.
func TestThiefDied(t *testing.T) {
	dir := t.TempDir()
	c := openTest(t, dir)
	g, err := c.Try(t.Context(), request("x"))
	must(t, err)
	path := filepath.Join(dir, namesName, "x.lock")
	halfMove(t, c.store.place.Load().names, "x")
	if _, err := c.Try(t.Context(), request("x")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("P1: Try of a held name whose record is being moved: %v", err)
	}
	// A second thief may move the record before the first thief's file is deleted. So only who has the paths
	// locked deletes a file.
	if _, err := os.Stat(path + oldSuffix); err != nil {
		t.Errorf("P1: what a record was moved from was deleted without the lock of the paths: %v", err)
	}
	if r := c.Renew(t.Context(), []driver.Grant{g})[0]; r.Err != nil {
		t.Errorf("P1: a hold was lost when its record was moved: %v", r.Err)
	}
	must(t, c.Release(t.Context(), []driver.Grant{g})[0], c.Close())
	if files := left(t, dir); len(files) != 0 {
		t.Errorf("P9: files are left: %q", files)
	}
}

// TestMoves lets operations and thieves have at one record, as fast as they can: no operation may be lost.
func TestMoves(t *testing.T) {
	const operations, while, pause = 200, 100 * time.Microsecond, 200 * time.Microsecond
	dir := t.TempDir()
	c := openTest(t, dir)
	r := request("x")
	r.Mode = driver.Shared
	if _, err := c.Try(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	names := c.store.place.Load().names
	ctx, cancel := context.WithCancel(t.Context())
	moved := make(chan int)
	go func() {
		n := 0
		for ctx.Err() == nil {
			f, err := openRecord(names, "x.lock", os.O_RDWR)
			if err != nil {
				break
			}
			if stolen, _ := c.store.place.Load().steal(f, newMemory(c.store)); stolen {
				n++
			}
			f.close()
			time.Sleep(pause)
		}
		moved <- n
	}()
	var grants []driver.Grant
	for range operations {
		next := r
		next.Owner = request("").Owner
		var g driver.Grant
		err := c.change(t.Context(), "x", func(op *operation) error {
			time.Sleep(while)
			h, err := op.Ask(next, c.id, false, op.sent, op.now, &op.rules)
			if err == nil {
				g = op.Grant(h)
			}
			return err
		})
		if err != nil {
			t.Error(err)
			break
		}
		grants = append(grants, g)
	}
	cancel()
	n := <-moved
	st, err := names.readRecord(t.Context(), "x.lock", newMemory(c.store))
	must(t, err)
	for i, g := range grants {
		if st.Held(g.Owner) == nil {
			t.Errorf("P1: hold %d was lost", i)
		}
	}
	if n == 0 {
		t.Error("no record was moved: the test tests nothing")
	}
	t.Logf("the record was moved %d times during %d operations", n, len(grants))
}
