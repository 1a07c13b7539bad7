package holdfast_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

// shown returns the note that the store shows.
func (w *world) shown(c *holdfast.Client, name string) string {
	w.Helper()
	info, err := c.Inspect(w.ctx, name)
	if err != nil {
		w.Fatal(err)
	}
	if len(info.Holders) != 1 {
		w.Fatalf("%d holders", len(info.Holders))
	}
	return info.Holders[0].Note
}

// TestSetNote: the note belongs to the hold: it stays over renewals and a downgrade, and is the
// same for all leases.
func TestSetNote(t *testing.T) {
	inWorld(t, func(w *world) {
		c, _ := w.client(nil)
		lock := c.RWMutex("n", &holdfast.Options{Note: "first"}).Write
		lease, err := lock.Acquire(w.ctx)
		if err != nil {
			w.Fatal(err)
		}
		token := lease.Token()
		again, err := lease.Reenter()
		if err != nil {
			w.Fatal(err)
		}
		if err := again.SetNote(w.ctx, "second"); err != nil {
			w.Fatal(err)
		}
		if err := again.Release(); err != nil {
			w.Fatal(err)
		}
		time.Sleep(time.Minute) // renewals
		if got := w.shown(c, "n"); got != "second" || lease.Token() != token {
			w.Errorf("note %q and token %d, want second and %d", got, lease.Token(), token)
		}
		if err := lease.Downgrade(w.ctx); err != nil {
			w.Fatal(err)
		}
		if got := w.shown(c, "n"); got != "second" {
			w.Errorf("note %q after a downgrade", got)
		}
		if err := lease.SetNote(w.ctx, ""); err != nil {
			w.Fatal(err)
		}
		if got := w.shown(c, "n"); got == "" || got == "second" {
			w.Errorf("the default note is %q", got)
		}
		if err := lease.Release(); err != nil {
			w.Fatal(err)
		}
		if err := lease.SetNote(w.ctx, "late"); !errors.Is(err, holdfast.ErrReleased) {
			w.Errorf("after the release: %v", err)
		}
	})
}

// noLosses is a driver that learns of no losses.
type noLosses struct{ driver.Forward }

func (d noLosses) Caps() driver.Caps {
	c := d.Forward.Caps()
	c.Ops &^= driver.OpNotify
	return c
}

// TestSetNoteFindsTheLoss: an answer that the hold is gone makes the lease lost (P2).
func TestSetNoteFindsTheLoss(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, err := holdfast.New(noLosses{driver.Forward{Driver: w.store.Client()}},
			&holdfast.ClientOptions{Clock: w.clock})
		if err != nil {
			w.Fatal(err)
		}
		defer holder.Close()
		operator, _ := w.client(nil)
		lease, err := holder.Mutex("n", nil).Acquire(w.ctx)
		if err != nil {
			w.Fatal(err)
		}
		if err := operator.Break(w.ctx, "n", lease.Token()); err != nil {
			w.Fatal(err)
		}
		if err := lease.Err(); err != nil {
			w.Fatalf("known before anybody asked: %v", err)
		}
		if err := lease.SetNote(w.ctx, "x"); !errors.Is(err, holdfast.ErrBroken) {
			w.Errorf("SetNote of a broken hold: %v", err)
		}
		if err := lease.Err(); !errors.Is(err, holdfast.ErrBroken) {
			w.Errorf("the lease after it: %v", err)
		}
	})
}

// TestWatch: a watch yields the present holders, then each change of them, and nothing else.
func TestWatch(t *testing.T) {
	inWorld(t, func(w *world) {
		c, _ := w.client(nil)
		watcher, _ := w.client(nil)
		ctx, cancel := context.WithCancel(w.ctx)
		var seen []int
		done := make(chan struct{})
		go func() {
			defer close(done)
			for info, err := range watcher.Watch(ctx, "n") {
				if err != nil {
					w.Error(err)
				}
				seen = append(seen, len(info.Holders))
			}
		}()
		synctest.Wait()
		read := c.RWMutex("n", nil).Read
		var leases []*holdfast.Lease
		for range 2 {
			lease, err := read.Acquire(w.ctx)
			if err != nil {
				w.Fatal(err)
			}
			leases = append(leases, lease)
			synctest.Wait()
		}
		time.Sleep(time.Minute) // renewals are no changes
		for _, lease := range leases {
			if err := lease.Release(); err != nil {
				w.Fatal(err)
			}
			synctest.Wait()
		}
		cancel()
		<-done
		if want := []int{0, 1, 2, 1, 0}; !slices.Equal(seen, want) {
			w.Errorf("holders seen: %v, want %v", seen, want)
		}
	})
}

// TestWatchBadInput: a watch refuses bad input at once (P10).
func TestWatchBadInput(t *testing.T) {
	inWorld(t, func(w *world) {
		c, _ := w.client(nil)
		for _, name := range []string{"", "a//b"} {
			n := 0
			for _, err := range c.Watch(w.ctx, name) {
				if n++; err == nil || n > 1 {
					w.Fatalf("Watch of %q: %v, %d times", name, err, n)
				}
			}
		}
	})
}
