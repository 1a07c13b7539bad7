package holdfast_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

// hookedContext is a context that calls onCancel when a context made from it is cancelled.
type hookedContext struct {
	context.Context
	done     chan struct{}
	onCancel func()
}

func (p hookedContext) Done() <-chan struct{} { return p.done }

func (p hookedContext) AfterFunc(func()) func() bool {
	return func() bool { p.onCancel(); return true }
}

// TestCohortLostBetweenHolders: suppose the store reports a loss after one holder has stopped and
// before the next has begun. The loss takes effect.
func TestCohortLostBetweenHolders(t *testing.T) {
	withBlocks(t, func(w *world) {
		c, _ := w.client(nil)
		q, first := w.contend(c, 2, nil)
		other, _ := w.client(nil)
		theirs := w.waiters()
		theirs.join(w.ctx, other.Mutex("n", nil))
		_, cancel := first.WithContext(hookedContext{w.ctx, make(chan struct{}), func() {
			if err := other.Break(w.ctx, "n", first.Token()); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}})
		defer cancel()
		if err := first.Release(); !errors.Is(err, holdfast.ErrBroken) {
			t.Errorf("P2: the release of a broken hold returned %v", err)
		}
		lease := theirs.next("the hold before is broken")
		q.nobody("the other client has it")
		w.release(lease)
		w.release(q.next("its cohort"))
		w.free("n", "all are done")
	})
}

// TestCohortClosedBetweenHolders: a client that is being closed hands nothing over (P6).
func TestCohortClosedBetweenHolders(t *testing.T) {
	withBlocks(t, func(w *world) {
		closing, released, closed := make(chan struct{}), make(chan struct{}), make(chan error)
		c, _ := w.client(nil)
		_, cancel := w.acquire(c.Mutex("another", nil)).WithContext(hookedContext{w.ctx, make(chan struct{}), func() {
			close(closing) // Close has ended it, and has not woken the waiters
			<-released
		}})
		defer cancel()
		q, first := w.contend(c, 2, nil)
		_, cancel = first.WithContext(hookedContext{w.ctx, make(chan struct{}), func() {
			go func() { closed <- c.Close() }()
			<-closing
		}})
		defer cancel()
		w.release(first)
		q.nobody("the client is closed")
		close(released)
		if err := <-q.errs; !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("P6: the waiter got %v", err)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
		w.free("n", "the client is closed")
	})
}

// TestCohortTimeout: a waiter that gives up during a cohort gets ErrHeld.
func TestCohortTimeout(t *testing.T) {
	withBlocks(t, func(w *world) {
		c, _ := w.client(nil)
		q, lease := w.contend(c, 2, nil)
		ctx, cancel := context.WithTimeout(w.ctx, time.Millisecond)
		defer cancel()
		_, err := c.Mutex("n", nil).Acquire(ctx)
		held := (*holdfast.HeldError)(nil)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &held) ||
			held.Token != lease.Token() {
			t.Errorf("P6: an acquire that ended during a cohort returned %v (%+v)", err, held)
		}
		w.release(lease)
		w.release(q.next("it was handed over"))
	})
}

// TestCohortDowngraded: a hold that was downgraded is shared at once.
func TestCohortDowngraded(t *testing.T) {
	withBlocks(t, func(w *world) {
		c, _ := w.client(nil)
		ctx, cancel := context.WithCancel(w.ctx)
		other, _ := w.client(nil)
		held := w.acquire(other.Mutex("n", nil))
		q, impatient := w.waiters(), w.waiters()
		q.join(w.ctx, c.Mutex("n", nil))
		impatient.join(ctx, c.Mutex("n", nil))
		w.release(held)
		lease := q.next("it was handed over")
		cancel()
		synctest.Wait()
		if err := lease.Downgrade(w.ctx); err != nil {
			t.Fatal(err)
		}
		reader, err := c.RWMutex("n", nil).Read.TryAcquire(w.ctx)
		if err != nil {
			t.Fatalf("P7: a reader beside a downgraded hold: %v", err)
		}
		w.release(reader)
		w.release(lease)
	})
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

// TestCohortPanics: a hook that panics ends no hold, and prevents no hand-over.
func TestCohortPanics(t *testing.T) {
	withBlocks(t, func(w *world) {
		panicked := 0
		c, _ := w.client(&holdfast.ClientOptions{
			Logger: slog.New(slog.DiscardHandler),
			Events: holdfast.Events{Acquired: func(e holdfast.Event) {
				panicked++
				panic("a hook")
			}},
		})
		q, lease := w.contend(c, 3, nil)
		for range 2 {
			before := lease.Token()
			w.release(lease)
			if lease = q.next("it was handed over"); lease.Token() != before+1 {
				t.Errorf("P3: token %d was followed by %d", before, lease.Token())
			}
		}
		w.release(lease)
		w.free("n", "all are done")
		if panicked != 3 {
			t.Errorf("the hook was called %d times", panicked)
		}
	})
}

// TestCohortLostByRenewal: suppose the renewal of an earlier hold of the cohort is answered late,
// with ErrBroken. The present hold is lost, because the store has one hold for all of the cohort
// (P2).
func TestCohortLostByRenewal(t *testing.T) {
	for name, renewal := range map[string]func(*holdfast.Lease){
		"in the background": func(*holdfast.Lease) { time.Sleep(6 * time.Millisecond) },
		"by hand":           func(l *holdfast.Lease) { go l.Renew(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			withBlocks(t, func(w *world) {
				f := &faulty{Forward: driver.Forward{Driver: w.store.Client()}}
				f.caps = func(c driver.Caps) driver.Caps { c.Ops &^= driver.OpNotify; return c }
				c, err := holdfast.New(f, &holdfast.ClientOptions{Clock: w.clock})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				answer := make(chan struct{})
				q, first := w.contend(c, 2,
					&holdfast.Options{TTL: 60 * time.Millisecond, RenewEvery: 5 * time.Millisecond})
				f.set(func() {
					f.renew = func(ctx context.Context, d driver.Driver, g []driver.Grant) []driver.Renewal {
						r := d.Renew(ctx, g)
						<-answer
						return r
					}
				})
				other, _ := w.client(nil)
				if err := other.Break(w.ctx, "n", first.Token()); err != nil {
					t.Fatal(err)
				}
				theirs := w.acquire(other.Mutex("n", nil))
				renewal(first)
				synctest.Wait() // the store has answered that it is broken, and the answer is on its way
				w.release(first)
				next := q.next("it was handed over")
				close(answer)
				synctest.Wait()
				if err := next.Err(); !errors.Is(err, holdfast.ErrBroken) {
					t.Errorf("P2: the client was told that the hold is broken, and Err is %v", err)
				}
				if err := next.Release(); !errors.Is(err, holdfast.ErrBroken) {
					t.Errorf("P2: Release returned %v", err)
				}
				w.release(theirs)
			})
		})
	}
}
