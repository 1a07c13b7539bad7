package holdfast_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

// parting is a context that calls leave when one made from it is cancelled.
type parting struct {
	context.Context
	done  chan struct{}
	leave func()
}

func (p parting) Done() <-chan struct{} { return p.done }

func (p parting) AfterFunc(func()) func() bool {
	return func() bool { p.leave(); return true }
}

// TestCohortLostBetweenHolders: a loss that the store tells of while one holder has
// stopped and the next has not begun is not overheard.
func TestCohortLostBetweenHolders(t *testing.T) {
	withBlocks(t, func(w *world) {
		c, _ := w.client(nil)
		q, first := w.contend(c, 2, nil)
		other, _ := w.client(nil)
		theirs := w.line()
		theirs.join(w.ctx, other.Mutex("n", nil))
		_, cancel := first.WithContext(parting{w.ctx, make(chan struct{}), func() {
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

// TestCohortClosedBetweenHolders: a client that is being closed passes nothing on (P6).
func TestCohortClosedBetweenHolders(t *testing.T) {
	withBlocks(t, func(w *world) {
		closing, released, closed := make(chan struct{}), make(chan struct{}), make(chan error)
		c, _ := w.client(nil)
		_, cancel := w.acquire(c.Mutex("another", nil)).WithContext(parting{w.ctx, make(chan struct{}), func() {
			close(closing) // Close has dropped it, and has not told those who wait
			<-released
		}})
		defer cancel()
		q, first := w.contend(c, 2, nil)
		_, cancel = first.WithContext(parting{w.ctx, make(chan struct{}), func() {
			go func() { closed <- c.Close() }()
			<-closing
		}})
		defer cancel()
		w.release(first)
		q.nobody("the client is closed")
		close(released)
		if err := <-q.errs; !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("P6: who waited got %v", err)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
		w.free("n", "the client is closed")
	})
}

// TestCohortTimeout: who gives up during a cohort is told that the name is held.
func TestCohortTimeout(t *testing.T) {
	withBlocks(t, func(w *world) {
		c, _ := w.client(nil)
		q, lease := w.contend(c, 2, nil)
		ctx, cancel := context.WithTimeout(w.ctx, time.Millisecond)
		defer cancel()
		_, err := c.Mutex("n", nil).Acquire(ctx)
		held := (*holdfast.HeldError)(nil)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &held) || held.Token != lease.Token() {
			t.Errorf("P6: an acquire that ended during a cohort returned %v (%+v)", err, held)
		}
		w.release(lease)
		w.release(q.next("it was handed over"))
	})
}

// TestCohortDowngraded: a hold that was made a shared one is shared at once.
func TestCohortDowngraded(t *testing.T) {
	withBlocks(t, func(w *world) {
		c, _ := w.client(nil)
		ctx, cancel := context.WithCancel(w.ctx)
		other, _ := w.client(nil)
		held := w.acquire(other.Mutex("n", nil))
		q, impatient := w.line(), w.line()
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

// lookedAt is a clock that calls look, once, before it tells the time.
type lookedAt struct {
	driver.Clock
	look atomic.Pointer[func()]
}

func (c *lookedAt) Now() driver.Instant {
	if look := c.look.Swap(nil); look != nil {
		(*look)()
	}
	return c.Clock.Now()
}

// TestCohortNoteTooLate: a note that comes as the hold is handed over is not the next's.
func TestCohortNoteTooLate(t *testing.T) {
	withBlocks(t, func(w *world) {
		clock := &lookedAt{Clock: w.clock}
		c, err := holdfast.New(w.store.Client(), &holdfast.ClientOptions{Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		q, first := w.contend(c, 2, &holdfast.Options{Note: "ours"})
		release := func() { w.release(first) }
		clock.look.Store(&release)
		if err := first.SetNote(w.ctx, "mine"); !errors.Is(err, holdfast.ErrReleased) {
			t.Errorf("P4: a note for a released hold: %v", err)
		}
		next := q.next("it was handed over")
		if note := w.holder().Note; note != "ours" {
			t.Errorf("P4: the next holder has the note %q", note)
		}
		w.release(next)
	})
}

// TestCohortTrustsTheLatest: an answer to an older renewal that comes late does not give
// the next holder more time than the one before had (P1).
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
			t.Errorf("P1: passing a hold on moved its deadline by %v", got.Sub(until))
		}
	})
}

// TestCohortSequencer: the sequencer of a hold that was handed over is believed, also when
// the store learns of it late, and those of the cohort's other holds are not.
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

// TestCohortPanics: a hook that panics ends no hold, and keeps none from being handed over.
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

// TestCohortLostByRenewal: an answer that comes for the hold before tells that the present
// one is broken, because it is the same in the store. (P2)
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
				q, first := w.contend(c, 2, &holdfast.Options{TTL: 60 * time.Millisecond, RenewEvery: 5 * time.Millisecond})
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
				synctest.Wait() // the store has said that it is broken, and the answer is on its way
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
