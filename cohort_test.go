package holdfast_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
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

// waiters are goroutines that wait for a lock, one behind the other.
type waiters struct {
	w      *world
	leases chan *holdfast.Lease
	errs   chan error
}

func (w *world) waiters() *waiters {
	return &waiters{w, make(chan *holdfast.Lease, 100), make(chan error, 100)}
}

// join starts one more, and returns when it waits.
func (q *waiters) join(ctx context.Context, l *holdfast.Lock) {
	go func() {
		lease, err := l.Acquire(ctx)
		if err != nil {
			q.errs <- err
			return
		}
		q.leases <- lease
	}()
	synctest.Wait()
}

// next returns the lease of the goroutine that has got one.
func (q *waiters) next(why string) *holdfast.Lease {
	q.w.Helper()
	synctest.Wait()
	select {
	case lease := <-q.leases:
		return lease
	default:
		q.w.Fatalf("P7: nobody has the name: %s", why)
		return nil
	}
}

// nobody fails the test if somebody has a lease.
func (q *waiters) nobody(why string) {
	q.w.Helper()
	synctest.Wait()
	if len(q.leases) > 0 {
		q.w.Errorf("P1: somebody has the name: %s", why)
	}
}

func (w *world) release(l *holdfast.Lease) {
	w.Helper()
	if err := l.Release(); err != nil {
		w.Errorf("P4: release: %v", err)
	}
}

// contend has n goroutines of one client wait behind another client's hold, and returns them when
// the first of them has the name.
func (w *world) contend(c *holdfast.Client, n int, options *holdfast.Options) (*waiters, *holdfast.Lease) {
	w.Helper()
	return w.contendBy(slices.Repeat([]*holdfast.Lock{c.Mutex("n", options)}, n)...)
}

// contendBy is contend for locks of one client that may differ.
func (w *world) contendBy(locks ...*holdfast.Lock) (*waiters, *holdfast.Lease) {
	w.Helper()
	other, _ := w.client(nil)
	held := w.acquire(other.Mutex("n", nil))
	q := w.waiters()
	for _, l := range locks {
		q.join(w.ctx, l)
	}
	w.release(held) // the head asked again, for a block of tokens, when the second joined
	return q, q.next("it was handed over")
}

// contendAround has two goroutines of one client wait behind another client's hold, and between them
// one for a further lock, unless that is nil. It returns them when the first of the two has the name.
func (w *world) contendAround(c *holdfast.Client, between *holdfast.Lock) (q, further *waiters, first *holdfast.Lease) {
	w.Helper()
	holder, _ := w.client(nil)
	held := w.acquire(holder.Mutex("n", nil))
	q, further = w.waiters(), w.waiters()
	q.join(w.ctx, c.Mutex("n", nil))
	if between != nil {
		further.join(w.ctx, between)
	}
	q.join(w.ctx, c.Mutex("n", nil))
	w.release(held)
	return q, further, q.next("it has its place in the queue")
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
		q, lease := w.contend(c, 2*block, nil)
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
		q, first := w.contend(c, 3, nil)
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
			q, theirs, first := w.contendAround(client, between)
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

// TestCohortTellsTheBlock: the driver gets a hold back with its block and the last token of it that
// was used, so that the store can go on from there (P3).
func TestCohortTellsTheBlock(t *testing.T) {
	withBlocks(t, func(w *world) {
		c, f := w.client(nil)
		q, first := w.contend(c, 2, nil)
		w.release(first)
		last := q.next("it was handed over")
		var got []driver.Grant
		f.set(func() {
			f.release = func(ctx context.Context, d driver.Driver, g []driver.Grant) []error {
				got = append(got, g...)
				return d.Release(ctx, g)
			}
		})
		w.release(last)
		if len(got) != 1 || got[0].Block != block || got[0].Token != first.Token()+1 || !got[0].HandedOver {
			t.Errorf("P3: after tokens %d and %d of a block of %d the driver is given %+v", first.Token(), last.Token(), block, got)
		}
	})
}

// TestCohortTrust: a hold that is handed over is trusted no longer than before (P1), and then lost
// without asking the store (P2).
func TestCohortTrust(t *testing.T) {
	withBlocks(t, func(w *world) {
		c, f := w.client(nil)
		q, first := w.contend(c, 2, &holdfast.Options{TTL: time.Second})
		time.Sleep(5 * time.Millisecond)
		until := first.ValidUntil()
		f.set(func() { f.renew = failRenewals })
		w.release(first)
		lease := q.next("it was handed over")
		if got := lease.ValidUntil(); !got.Equal(until) {
			t.Errorf("P1: handing a hold over moved its deadline by %v", got.Sub(until))
		}
		<-lease.Done()
		if now := time.Now(); now.After(until) {
			t.Errorf("P2: the loss came %v late", now.Sub(until))
		}
		if err := lease.Release(); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("P2: releasing a lost hold returned %v", err)
		}
	})
}

// TestCohortBroken: a break by the token that the store shows reaches the holder that has the hold
// by then.
func TestCohortBroken(t *testing.T) {
	withBlocks(t, func(w *world) {
		c, _ := w.client(nil)
		q, first := w.contend(c, 3, nil)
		w.release(first)
		lease := q.next("it was handed over")
		operator, _ := w.client(nil)
		if err := operator.Break(w.ctx, "n", w.holder().Token); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := lease.Err(); !errors.Is(err, holdfast.ErrBroken) {
			t.Errorf("P2: Err of a broken hold is %v", err)
		}
		next := q.next("the one before is broken")
		if next.Token() <= lease.Token() {
			t.Errorf("P3: token %d after %d", next.Token(), lease.Token())
		}
		w.release(next)
	})
}

// TestCohortRefusals: a hold that may not be handed over locally goes back to the store at once.
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
	} {
		t.Run(c.name, func(t *testing.T) {
			withBlocks(t, func(w *world) {
				client, f := w.client(nil)
				q, lease := w.contend(client, 2, &c.options)
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

// TestCohortKeepsTheOrder: suppose a reader is the first waiter and a writer the second. The
// writer's hold is not handed over past the reader.
func TestCohortKeepsTheOrder(t *testing.T) {
	withBlocks(t, func(w *world) {
		c, f := w.client(nil)
		q, readers, lease := w.contendAround(c, c.RWMutex("n", nil).Read)
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
		q, lease := w.contend(c, 3, nil)
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

// TestCohortContexts: the work of a holder ends before that of the next begins.
func TestCohortContexts(t *testing.T) {
	withBlocks(t, func(w *world) {
		c, _ := w.client(nil)
		q, lease := w.contend(c, 2, nil)
		ctx, cancel := lease.WithContext(w.ctx)
		defer cancel()
		w.release(lease)
		if !errors.Is(context.Cause(ctx), holdfast.ErrReleased) {
			t.Errorf("P1: the context of the holder before: %v", context.Cause(ctx))
		}
		w.release(q.next("it was handed over"))
	})
}

// TestCohortClosed: Close ends a cohort, its waiters, and the hold.
func TestCohortClosed(t *testing.T) {
	withBlocks(t, func(w *world) {
		c, _ := w.client(nil)
		q, first := w.contend(c, 3, nil)
		w.release(first)
		lease := q.next("it was handed over")
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := <-q.errs; !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("P6: the waiter got %v", err)
		}
		if !errors.Is(lease.Err(), holdfast.ErrReleased) {
			t.Errorf("P2: the lease has %v", lease.Err())
		}
		w.free("n", "the client is closed")
	})
}

// TestCohortHistory: with everything happening at once, tokens increase from hold to hold, no lease
// is lost, and nothing is left. The goroutines run side by side, but in virtual time: on a loaded
// machine claims would run out.
func TestCohortHistory(t *testing.T) {
	inWorld(t, func(w *world) {
		w.store = memlock.NewStore(&memlock.Options{Clock: w.clock, TokenBlock: block, Poll: 100 * time.Millisecond})
		var clients []*holdfast.Client
		for range 3 {
			c, err := holdfast.New(w.store.Client(), &holdfast.ClientOptions{Clock: w.clock})
			if err != nil {
				t.Fatal(err)
			}
			clients = append(clients, c)
		}
		var wg sync.WaitGroup
		h := &cohortHistory{world: w}
		for i := range 24 {
			lock := clients[i%3].Mutex("n", nil)
			wg.Go(func() {
				for n := range 100 {
					h.hold(lock, n%10 == i%10, time.Duration(i)*100*time.Microsecond)
				}
			})
		}
		wg.Wait()
		h.check()
		for _, c := range clients {
			if err := c.Close(); err != nil {
				w.Error(err)
			}
		}
		w.free("n", "P9: after all")
	})
}

// cohortHistory is the tokens of successive holds.
type cohortHistory struct {
	*world
	inside sync.Mutex // never contended, if the lock works
	tokens []holdfast.Token
}

// hold takes the lock, perhaps impatiently, works for a moment and releases it.
func (h *cohortHistory) hold(lock *holdfast.Lock, impatient bool, patience time.Duration) {
	ctx, cancel := context.WithCancel(h.ctx)
	if impatient {
		ctx, cancel = context.WithTimeout(h.ctx, patience)
	}
	lease, err := lock.Acquire(ctx)
	cancel()
	if err != nil {
		if !impatient || !errors.Is(err, context.DeadlineExceeded) {
			h.Errorf("P6: acquire: %v", err)
		}
		return
	}
	if !h.inside.TryLock() {
		h.Error("P1: two holders")
	} else {
		h.tokens = append(h.tokens, lease.Token())
		runtime.Gosched() // so that others wait
		work := rand.N(200 * time.Microsecond)
		if rand.N(50) == 0 {
			work = 12 * time.Millisecond // longer than a cohort
		}
		time.Sleep(work) // meanwhile some give up
		if err := lease.Err(); err != nil {
			h.Errorf("P2: at work: %v", err)
		}
		h.inside.Unlock()
	}
	if err := lease.Release(); err != nil {
		h.Errorf("P4: release: %v", err)
	}
}

// check checks the tokens at the end.
func (h *cohortHistory) check() {
	if !slices.IsSorted(h.tokens) || len(slices.Compact(h.tokens)) != len(h.tokens) {
		h.Error("P3: tokens do not increase from hold to hold")
	}
	passed := 0
	for _, token := range h.tokens {
		if token%block != 0 {
			passed++
		}
	}
	h.Logf("%d holds, %d of them handed over", len(h.tokens), passed)
	if passed == 0 {
		h.Errorf("of %d holds none was handed over", len(h.tokens))
	}
}

// TestCohortTrustsTheLatest: a late answer to an older renewal does not give the next holder more
// time than the holder before had (P1).
func TestCohortTrustsTheLatest(t *testing.T) {
	withBlocks(t, func(w *world) {
		c, f := w.client(nil)
		q, first := w.contend(c, 2, nil)
		late := make(chan struct{})
		f.set(func() {
			f.renew = func(ctx context.Context, d driver.Driver, g []driver.Grant) []driver.Renewal {
				out := d.Renew(ctx, g)
				<-late
				return out
			}
		})
		go first.Renew(w.ctx)
		synctest.Wait()
		time.Sleep(time.Millisecond)
		f.set(func() {
			f.renew = func(ctx context.Context, d driver.Driver, g []driver.Grant) []driver.Renewal {
				out := d.Renew(ctx, g)
				out[0].Valid /= 2 // this store makes it shorter
				return out
			}
		})
		if err := first.Renew(w.ctx); err != nil {
			t.Fatal(err)
		}
		close(late)
		synctest.Wait()
		until := first.ValidUntil()
		w.release(first)
		if got := q.next("it was handed over").ValidUntil(); got.After(until) {
			t.Errorf("P1: handing a hold over moved its deadline by %v", got.Sub(until))
		}
	})
}

// TestCohortSequencer: the sequencer of the present hold of a cohort is current, even if the store
// learns of it late. Those of the cohort's other holds are not.
func TestCohortSequencer(t *testing.T) {
	withBlocks(t, func(w *world) {
		c, f := w.client(nil)
		f.set(func() {
			f.renew = func(ctx context.Context, d driver.Driver, g []driver.Grant) []driver.Renewal {
				time.Sleep(100 * time.Millisecond)
				return d.Renew(ctx, g)
			}
		})
		q, first := w.contend(c, 2, nil)
		w.release(first)
		lease := q.next("it was handed over")
		other, _ := w.client(nil)
		if err := other.CheckSequencer(w.ctx, lease.Sequencer()); err != nil {
			t.Errorf("P3: the holder's sequencer: %v", err)
		}
		if err := other.CheckSequencer(w.ctx, first.Sequencer()); !errors.Is(err, holdfast.ErrNotHeld) {
			t.Errorf("P3: the sequencer of the hold before: %v", err)
		}
		w.release(lease)
		if err := other.CheckSequencer(w.ctx, lease.Sequencer()); !errors.Is(err, holdfast.ErrNotHeld) {
			t.Errorf("P3: the sequencer of a released hold: %v", err)
		}
	})
}
