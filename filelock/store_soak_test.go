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

// TestLeftToTheNext: what a client cannot clean when it closes, the next one
// does: names that it still holds, and those closed by a delay.
func TestLeftToTheNext(t *testing.T) {
	dir := t.TempDir()
	a := openTest(t, dir)
	if _, err := a.Try(t.Context(), request("held")); err != nil {
		t.Fatal(err)
	}
	a.Close()
	b := attachTest(t, dir)
	if files := left(t, dir); len(files) != 1 {
		t.Errorf("P9: after a close with a hold and an opening there are %q", files)
	}
	r := request("closed")
	r.MinHold = 50 * time.Millisecond
	g, err := b.Try(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
		t.Fatal(err)
	}
	b.Close()
	time.Sleep(r.MinHold)
	attachTest(t, dir)
	if files := left(t, dir); len(files) != 1 {
		t.Errorf("P9: after a close with a closed name and an opening there are %q", files)
	}
}

// TestReboot: what was held before a reboot is free or closed for its
// lock-delay or minimum hold, times of the other boot mean nothing, and torn records are gone.
func TestReboot(t *testing.T) {
	dir := t.TempDir()
	p := obeying(t, dir)
	token := p.ask("ok", "try plain 1m 0s")
	p.ask("ok", "try delayed 1m 400ms")
	p.ask("ok", "try lasting 1m 0s 400ms")
	p.ask("ok", "try torn 1m 0s")
	if err := os.Truncate(filepath.Join(dir, "names", "torn.lock"), 0); err != nil {
		t.Fatal(err)
	}
	// A hold that the other boot closed for long, at an instant far ahead.
	far := state{name: "far"}
	far.Holds = full().Holds[2:]
	far.Holds[0].Request = request("far")
	far.Holds[0].LockDelay, far.Holds[0].Expires = 400*time.Millisecond, maxInstant
	text := appendState(nil, &far)
	head := appendHeader(nil, textStart, settled, text)
	head = append(append(head, make([]byte, textStart-len(head))...), text...)
	if err := os.WriteFile(filepath.Join(dir, "names", "far.lock"), head, 0o600); err != nil {
		t.Fatal(err)
	}
	reboot(t, dir)

	c := openTest(t, dir)
	if err := c.attach(t.Context()); err == nil || !strings.Contains(err.Error(), "another boot") {
		t.Fatalf("using a directory that a living client uses on another boot: %v", err)
	}
	if _, err := c.Inspect(t.Context(), "plain"); err == nil || !strings.Contains(err.Error(), "another boot") {
		t.Fatalf("looking into a directory that a living client uses on another boot: %v", err)
	}
	p.kill()
	time.Sleep(aliveFor)
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
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "names", "x.lock")
	names := c.store.place.Load().names
	temp, fd, err := names.temporary()
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(
		pwrite(fd, appendHeader(nil, textStart, moving, nil), 0), os.Link(path, path+oldSuffix), os.Rename(names.at(temp), path))
	closeFD(fd)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Try(t.Context(), request("x")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("P1: Try of a held name whose record is being moved: %v", err)
	}
	// Suppose a thief has moved the record again before the first one's file is deleted: it
	// would be the wrong one. So only those delete it who have the paths locked.
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

// TestMoves lets operations and thieves have at one record, slowly and as fast as they can: no
// operation may be lost.
func TestMoves(t *testing.T) {
	t.Run("slow", func(t *testing.T) { moves(t, 50, 3*time.Millisecond, 8*time.Millisecond) })
	t.Run("fast", func(t *testing.T) { moves(t, 200, 100*time.Microsecond, 200*time.Microsecond) })
}

// moves runs operations that take a while, with pauses between one theft and the next.
func moves(t *testing.T, operations int, while, pause time.Duration) {
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
			f, err := openRecord(names, "x.lock", os.O_RDWR, nil)
			if err != nil {
				break
			}
			if stolen, _ := c.store.steal(f); stolen {
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
	st, err := names.readRecord(t.Context(), "x.lock", nil, parseAll)
	if err != nil {
		t.Fatal(err)
	}
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
