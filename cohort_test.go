package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/memlock"
)

const block = 4

// withBlocks is a world whose store reserves blocks of tokens.
func withBlocks(t *testing.T, test func(*world)) {
	t.Helper()
	inWorld(t, func(w *world) {
		w.store = memlock.NewStore(&memlock.Options{Clock: w.clock, TokenBlock: block})
		test(w)
	})
}

// contend has n goroutines of one client wait behind another client's hold, and one that waits for a further lock
// behind the first of them, unless that lock is nil. It returns them when the first has the name.
func (w *world) contend(
	c *holdfast.Client, n int, options *holdfast.Options, between *holdfast.Lock,
) (q, further *waiters, first *holdfast.Lease) {
	w.Helper()
	holder, _ := w.client(nil)
	held := w.acquire(holder.Mutex("n", nil))
	q, further = w.waiters(), w.waiters()
	for i := range n {
		q.join(w.ctx, c.Mutex("n", options))
		if i == 0 && between != nil {
			further.join(w.ctx, between)
		}
	}
	time.Sleep(2 * driver.DefaultPoll) // the head confirms its place, and asks for a block of tokens
	w.release(held)
	first = q.next("it has its place in the queue")
	if err := first.Renew(w.ctx); err != nil { // the end of a claim depends on when the head last asked the store
		w.Fatal(err)
	}
	return q, further, first
}

// holder returns what the store knows of the name's one holder.
func (w *world) holder() driver.Holder {
	w.Helper()
	d := w.store.Client()
	defer d.Close()
	info, err := d.(driver.Operator).Inspect(w.ctx, "n")
	if err != nil || len(info.Holders) != 1 {
		w.Fatalf("the store shows %+v (%v)", info, err)
	}
	return info.Holders[0]
}

// TestCohortHandsOver: inside a client a hold goes from one to the next without the store, each
// time under a token of its own (P3), in the order of arrival (P8). When the block is used up the
// other client gets the name.
func TestCohortHandsOver(t *testing.T) {
	withBlocks(t, func(w *world) {
		c, f := w.client(nil)
		q, _, lease := w.contend(c, 2*block, nil, nil)
		other, _ := w.client(nil)
		theirs := w.waiters()
		theirs.join(w.ctx, other.Mutex("n", nil))
		releases := f.releases.Load()
		for i := range block - 1 {
			w.release(lease)
			theirs.nobody("the cohort is not over")
			next := q.next("it was handed over")
			if next.Token() != lease.Token()+1 {
				t.Errorf("P3: hold %d of the cohort has token %d after %d",
					i+2, next.Token(), lease.Token())
			}
			if !errors.Is(lease.Err(), holdfast.ErrReleased) || next.Err() != nil {
				t.Errorf("P1: after its hand-over a lease has %v, the next %v", lease.Err(), next.Err())
			}
			lease = next
		}
		if n := f.releases.Load() - releases; n != 0 {
			t.Errorf("the store was asked for %d releases", n)
		}
		w.release(lease)
		q.nobody("the other client comes first in the queue")
		second := theirs.next("the cohort is over")
		if second.Token() != lease.Token()+1 { // the next block
			t.Errorf("P3: token %d after %d", second.Token(), lease.Token())
		}
		w.release(second)
		for range block {
			lease = q.next("the other client has released")
			w.release(lease)
		}
		w.free("n", "all are done")
	})
}

// TestCohortEnds: a long hold goes back to the store's queue and not to a local waiter, and the
// store learns its token.
func TestCohortEnds(t *testing.T) {
	withBlocks(t, func(w *world) {
		c, f := w.client(nil)
		q, _, first := w.contend(c, 3, nil, nil)
		w.release(first)
		lease := q.next("it was handed over")
		if err := c.CheckSequencer(w.ctx, lease.Sequencer()); err != nil {
			t.Errorf("P3: the sequencer of a hold that was handed over: %v", err)
		}
		if err := c.CheckSequencer(w.ctx, first.Sequencer()); !errors.Is(err, holdfast.ErrNotHeld) {
			t.Errorf("P3: the sequencer of the hold before: %v", err)
		}
		synctest.Wait()
		if at := w.holder(); at.Token != lease.Token() {
			t.Errorf("P3: the store has token %d, the lease %d", at.Token, lease.Token())
		}
		if err := c.Break(w.ctx, "n", first.Token()); !errors.Is(err, holdfast.ErrNotHeld) {
			t.Errorf("P4: a break by the token of the hold before: %v", err)
		}
		other, _ := w.client(nil)
		theirs := w.waiters()
		theirs.join(w.ctx, other.Mutex("n", nil))
		releases := f.releases.Load()
		w.release(lease)
		if f.releases.Load() == releases {
			t.Error("P8: a hold was handed over after its cohort")
		}
		theirs.nobody("the client's next had its place first")
		last := q.next("the store handed it over")
		w.release(last)
		w.release(theirs.next("the store handed it over"))
		w.free("n", "all are done")
	})
}

// TestCohortLasts: a hold is handed over for 10 ms after the grant, or for 2 ms if others were in
// the store's queue then (P8).
func TestCohortLasts(t *testing.T) {
	for _, c := range []struct {
		contended bool
		after     time.Duration
		handed    bool
	}{
		{false, 9 * time.Millisecond, true},
		{false, 10 * time.Millisecond, false},
		{true, time.Millisecond, true},
		{true, 2 * time.Millisecond, false},
	} {
		withBlocks(t, func(w *world) {
			client, f := w.client(nil)
			other, _ := w.client(nil)
			var between *holdfast.Lock
			if c.contended {
				between = other.Mutex("n", nil)
			}
			q, theirs, first := w.contend(client, 2, nil, between)
			time.Sleep(c.after)
			releases := f.releases.Load()
			w.release(first)
			if handed := f.releases.Load() == releases; handed != c.handed {
				t.Errorf("P8: contended %t, released after %v: handed over %t", c.contended, c.after, handed)
			}
			if c.contended && !c.handed {
				w.release(theirs.next("it has its place in the queue"))
			}
			w.release(q.next("it comes next"))
			if c.contended && c.handed {
				w.release(theirs.next("it comes last"))
			}
		})
	}
}

// TestCohortOfThoseWhoWaited: if others are in the store's queue, a hold is handed over to those who waited at
// the grant. Who comes later waits behind the others (P8).
func TestCohortOfThoseWhoWaited(t *testing.T) {
	withBlocks(t, func(w *world) {
		client, _ := w.client(nil)
		other, _ := w.client(nil)
		q, theirs, lease := w.contend(client, 2, nil, other.Mutex("n", nil))
		late := w.waiters()
		late.join(w.ctx, client.Mutex("n", nil))
		w.release(lease)
		w.release(q.next("it waited at the grant"))
		late.nobody("the other client has waited for longer")
		w.release(theirs.next("the cohort is over"))
		w.release(late.next("it comes last"))
	})
}

// TestCohortRefusals: a hold that may not be handed over locally goes back to the store at once. One of
// which others were told, by its sequencer or its grant, may not: to the store the next holder's would be
// the same hold, and what arrives late for the first would be carried out beside the next (P1).
func TestCohortRefusals(t *testing.T) {
	for _, c := range []struct {
		name    string
		options holdfast.Options // of the waiters
		do      func(*world, *holdfast.Client, *faulty, *holdfast.Lease)
	}{
		{name: "a minimum hold", options: holdfast.Options{MinHold: time.Millisecond}},
		{name: "no renewal", options: holdfast.Options{RenewEvery: -1}},
		{name: "little left", options: holdfast.Options{TTL: 20 * time.Millisecond, RenewEvery: 12 * time.Millisecond}, do: func(*world, *holdfast.Client, *faulty, *holdfast.Lease) {
			time.Sleep(8 * time.Millisecond)
		}},
		{name: "a long suspend", do: func(w *world, _ *holdfast.Client, _ *faulty, _ *holdfast.Lease) { w.clock.suspend(time.Second / 10) }},
		{name: "in doubt", do: func(w *world, _ *holdfast.Client, f *faulty, l *holdfast.Lease) {
			f.set(func() { f.renew = failRenewals })
			if err := l.Renew(w.ctx); !errors.Is(err, errStore) {
				w.Errorf("renew: %v", err)
			}
		}},
		{name: "downgraded", do: func(w *world, _ *holdfast.Client, _ *faulty, l *holdfast.Lease) {
			if err := l.Downgrade(w.ctx); err != nil {
				w.Error(err)
			}
		}},
		{name: "its sequencer was shown", do: func(_ *world, _ *holdfast.Client, _ *faulty, l *holdfast.Lease) { l.Sequencer() }},
		{name: "its grant was shown", do: func(_ *world, _ *holdfast.Client, _ *faulty, l *holdfast.Lease) { l.Grant() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			withBlocks(t, func(w *world) {
				client, f := w.client(nil)
				q, _, lease := w.contend(client, 2, &c.options, nil)
				if c.do != nil {
					c.do(w, client, f, lease)
				}
				time.Sleep(time.Millisecond) // the minimum hold
				releases := f.releases.Load()
				w.release(lease)
				if f.releases.Load() == releases {
					t.Error("it was handed over")
				}
				w.release(q.next("the store handed it over"))
			})
		})
	}
}

// TestCohortKeepsTheOrder: if a reader is the first waiter and a writer the second, a writer's hold is not
// handed over past the reader (P8).
func TestCohortKeepsTheOrder(t *testing.T) {
	withBlocks(t, func(w *world) {
		c, f := w.client(nil)
		q, readers, lease := w.contend(c, 2, nil, c.RWMutex("n", nil).Read)
		w.release(lease)
		if f.releases.Load() != 1 {
			t.Error("P8: the hold was handed over past a reader")
		}
		q.nobody("the reader comes first")
		w.release(readers.next("it has its place in the queue"))
		w.release(q.next("it has its place in the queue"))
		w.free("n", "all are done")
	})
}

// TestCohortHandles: a hold is handed over when the last of its leases is released. A downgrade
// first tells the store the token.
func TestCohortHandles(t *testing.T) {
	withBlocks(t, func(w *world) {
		c, _ := w.client(nil)
		q, _, lease := w.contend(c, 3, nil, nil)
		again, err := lease.Reenter()
		if err != nil {
			t.Fatal(err)
		}
		w.release(lease)
		q.nobody("another lease has the hold")
		w.release(again)
		next := q.next("it was handed over")
		token := next.Token()
		if err := next.Downgrade(w.ctx); err != nil {
			t.Fatal(err)
		}
		if at := w.holder(); next.Token() != token || at.Token != token || at.Mode != holdfast.Shared {
			t.Errorf("P3: token %d was downgraded to %d, in the store to %v with %d",
				token, next.Token(), at.Mode, at.Token)
		}
		w.release(next)
		w.release(q.next("the reader has released"))
		w.free("n", "all are done")
	})
}

// TestCheckSequencer: a sequencer is current until its hold has ended.
func TestCheckSequencer(t *testing.T) {
	inWorld(t, func(w *world) {
		c, _ := w.client(nil)
		lease := w.acquire(c.Mutex("x", nil))
		seq := lease.Sequencer()
		if err := c.CheckSequencer(w.ctx, seq); err != nil {
			t.Error(err)
		}
		if err := c.CheckSequencer(w.ctx, seq+"x"); !errors.Is(err, holdfast.ErrNotHeld) {
			t.Errorf("of another name, which nobody holds: %v", err)
		}
		_ = lease.Release()
		if err := c.CheckSequencer(w.ctx, seq); !errors.Is(err, holdfast.ErrNotHeld) {
			t.Errorf("after the release: %v", err)
		}
		w.acquire(c.Mutex("x", nil))
		if err := c.CheckSequencer(w.ctx, seq); !errors.Is(err, holdfast.ErrNotHeld) {
			t.Errorf("under the next holder: %v", err)
		}
		if err := c.CheckSequencer(w.ctx, "nonsense"); err == nil || errors.Is(err, holdfast.ErrNotHeld) {
			t.Errorf("nonsense: %v", err)
		}
	})
}

// TestSequencerUnknownToTheStore: a hold was handed over, and the renewal that tells the store does not get
// through. The store does not know the holder yet, and a guard must not say that the lock is lost.
func TestSequencerUnknownToTheStore(t *testing.T) {
	withBlocks(t, func(w *world) {
		c, f := w.client(nil)
		q, _, first := w.contend(c, 2, nil, nil)
		f.set(func() { f.renew = f.slowRenewals(time.Hour) })
		w.release(first)
		lease := q.next("it was handed over")
		other, _ := w.client(nil)
		short, cancel := context.WithTimeout(w.ctx, 15*time.Millisecond)
		defer cancel()
		for _, ctx := range []context.Context{short, w.ctx} {
			if err := other.CheckSequencer(ctx, lease.Sequencer()); errors.Is(err, holdfast.ErrNotHeld) ||
				!errors.Is(err, holdfast.ErrUncertain) || lease.Err() != nil {
				t.Errorf("P3: the live holder's sequencer: %v", err)
			}
		}
		// CheckSequencer asks again until the store knows.
		f.set(func() { f.renew = f.slowRenewals(100 * time.Millisecond) })
		go lease.Renew(w.ctx)
		if err := other.CheckSequencer(w.ctx, lease.Sequencer()); err != nil {
			t.Errorf("once the store knows the holder: %v", err)
		}
		w.release(lease)
		if err := other.CheckSequencer(w.ctx, lease.Sequencer()); !errors.Is(err, holdfast.ErrNotHeld) {
			t.Errorf("after the release: %v", err)
		}
	})
}
