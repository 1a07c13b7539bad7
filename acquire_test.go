package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/ctxerr"
	"github.com/holdfastlock/holdfast/internal/wrap"
)

// TestHeld: a TryAcquire says at once who holds the name, and an Acquire says it when its context ends. Both
// leave nothing behind (P6). A waiter gets the name when it is free (P7).
func TestHeld(t *testing.T) {
	reason := errors.New("the user went home")
	inWorld(t, func(w *world) {
		a, _ := w.client(nil)
		b, _ := w.client(nil)
		lease := w.acquire(a.Mutex("x", &holdfast.Options{Note: "the first"}))
		ctx, cancel := context.WithTimeoutCause(w.ctx, time.Minute, reason)
		defer cancel()
		_, try := b.Mutex("x", nil).TryAcquire(w.ctx)
		var gaveUp error
		if took := w.took(func() { _, gaveUp = b.Mutex("x", nil).Acquire(ctx) }); took != time.Minute {
			t.Errorf("gave up after %v", took)
		}
		for _, err := range []error{try, gaveUp} {
			held := (*holdfast.HeldError)(nil)
			if !errors.As(err, &held) || held.Name != "x" || held.Note != "the first" || held.Token != lease.Token() {
				t.Errorf("%q does not name the holder", err)
			}
		}
		for _, want := range []error{context.DeadlineExceeded, reason, holdfast.ErrHeld} {
			if !errors.Is(gaveUp, want) {
				t.Errorf("%q is not %q", gaveUp, want)
			}
		}
		time.AfterFunc(time.Minute, func() { w.release(lease) })
		if took := w.opens("x"); took != time.Minute {
			t.Errorf("P7: the lock was free after 1m, and acquired after %v", took)
		}
		w.free("x", "P6: after giving up")
	})
}

// TestArrivalOrder: P8: inside one client waiters are served in the order in which they came. Between clients,
// a head that gives up leaves its place in the store's queue to the next of its client.
func TestArrivalOrder(t *testing.T) {
	inWorld(t, func(w *world) {
		a, _ := w.client(nil)
		b, _ := w.client(nil)
		c, _ := w.client(nil)
		lease := w.acquire(a.Mutex("x", nil))
		impatient, giveUp := context.WithCancel(w.ctx)
		var mu sync.Mutex
		var order []string
		var wg sync.WaitGroup
		enter := func(name string, c *holdfast.Client, ctx context.Context) {
			wg.Go(func() {
				l, err := c.Mutex("x", nil).Acquire(ctx)
				if err != nil {
					return
				}
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				_ = l.Release()
			})
			synctest.Wait()
		}
		enter("b1", b, impatient)
		enter("c", c, w.ctx)
		want := "[b2 c" // b2 comes after c, and inherits the place of b1
		for i := range 20 {
			name := fmt.Sprint("b", i+2)
			if enter(name, b, w.ctx); i > 0 {
				want += " " + name
			}
		}
		giveUp()
		synctest.Wait()
		w.release(lease)
		wg.Wait()
		if got := fmt.Sprint(order); got != want+"]" {
			t.Errorf("P8: served %v, want %v]", got, want)
		}
		synctest.Wait()
		w.free("x", "P9")
	})
}

// TestSharedNeighboursGoTogether: readers that wait one behind the other share one hold, and the last of them frees
// the name.
func TestSharedNeighboursGoTogether(t *testing.T) {
	inWorld(t, func(w *world) {
		c, _ := w.client(nil)
		rw, q := c.RWMutex("x", nil), w.waiters()
		writer := w.acquire(rw.Write)
		const many = 10
		for range many {
			q.join(w.ctx, rw.Read)
		}
		w.release(writer)
		var readers []*holdfast.Lease
		for range many {
			readers = append(readers, q.next("readers share it"))
		}
		for _, r := range readers {
			if r.Token() <= writer.Token() || r.Mode() != holdfast.Shared {
				t.Errorf("P3: a reader after writer %d has %v token %d", writer.Token(), r.Mode(), r.Token())
			}
			if _, err := rw.Write.TryAcquire(w.ctx); !errors.Is(err, holdfast.ErrHeld) {
				t.Fatalf("P1: a writer beside a reader: %v", err)
			}
			w.release(r)
		}
		if _, err := rw.Write.TryAcquire(w.ctx); err != nil {
			t.Error(err)
		}
	})
}

// TestStoreErrors: until the store has answered once, its errors are returned. After that the acquire retries
// while the context lasts.
func TestStoreErrors(t *testing.T) {
	inWorld(t, func(w *world) {
		a, _ := w.client(nil)
		b, f := w.client(nil)
		f.set(func() { f.try = failAsks })
		if _, err := b.Mutex("x", nil).Acquire(w.ctx); !errors.Is(err, errStore) {
			t.Errorf("before the first contact: %v", err)
		}
		f.set(func() { f.try = nil })

		lease, q := w.acquire(a.Mutex("x", nil)), w.waiters()
		ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
		defer cancel()
		q.join(ctx, b.Mutex("x", nil))
		f.set(func() { f.enqueue, f.wait = failAsks, failAsks })
		err := <-q.errs
		for _, want := range []error{holdfast.ErrHeld, context.DeadlineExceeded, errStore} {
			if !errors.Is(err, want) {
				t.Errorf("after contact: %q is not %q", err, want)
			}
		}
		q.join(w.ctx, b.Mutex("x", nil))
		time.Sleep(time.Minute)
		f.set(func() { f.enqueue, f.wait = nil, nil })
		w.release(lease)
		w.release(<-q.leases) // the store has recovered
	})
}

// TestWhyUnanswered: whoever waited in vain is told what was in the way, if the driver knows, though that came
// with the end of the context: at the first contact, and of a place in the queue.
func TestWhyUnanswered(t *testing.T) {
	inWorld(t, func(w *world) {
		a, _ := w.client(nil)
		b, f := w.client(nil)
		silent := func(ctx context.Context, r driver.Request) (driver.Grant, error) {
			<-ctx.Done()
			return driver.Grant{Request: r}, driver.Uncertain(&ctxerr.Unanswered{Ended: ctx.Err(), Why: errStore})
		}
		defer w.acquire(a.Mutex("held", nil)).Release()
		for name, fault := range map[string]*asks{"free": &f.try, "held": &f.wait} {
			f.set(func() { f.try, f.wait = nil, nil; *fault = silent })
			ctx, cancel := context.WithTimeout(w.ctx, time.Second)
			defer cancel()
			_, err := b.Mutex(name, nil).Acquire(ctx)
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errStore) {
				t.Errorf("%s: %v", name, err)
			}
			if strings.Count(err.Error(), context.DeadlineExceeded.Error()) != 1 {
				t.Errorf("%s: the end of the context is told more than once: %v", name, err)
			}
		}
	})
}

// TestTryBehindTheHead: TryAcquire waits for the attempt in flight, and returns at once if the head is known to
// wait.
func TestTryBehindTheHead(t *testing.T) {
	inWorld(t, func(w *world) {
		a, _ := w.client(nil)
		b, f := w.client(nil)
		defer w.acquire(a.Mutex("x", nil)).Release()
		f.try = func(ctx context.Context, r driver.Request) (driver.Grant, error) {
			time.Sleep(3 * time.Second)
			return f.Driver.Try(ctx, r)
		}
		ctx, cancel := context.WithCancel(w.ctx)
		defer cancel()
		w.waiters().join(ctx, b.Mutex("x", nil))
		for _, want := range []time.Duration{3 * time.Second, 0} {
			var err error
			took := w.took(func() { _, err = b.Mutex("x", nil).TryAcquire(w.ctx) })
			if !errors.Is(err, holdfast.ErrHeld) || took != want {
				t.Errorf("TryAcquire returned %v after %v, want ErrHeld after %v", err, took, want)
			}
		}
		if n := f.tries.Load(); n != 1 {
			t.Errorf("the store was asked %d times", n)
		}
	})
}

// TestSemaphore: permits add up, and another kind or number of slots is a mismatch, by another client or at the
// client's own gate.
func TestSemaphore(t *testing.T) {
	inWorld(t, func(w *world) {
		c, _ := w.client(nil)
		other, _ := w.client(nil)
		permits := func(n int) *holdfast.Lock { return c.Semaphore("x", 3, &holdfast.Options{Permits: n}) }
		two, one := w.acquire(permits(2)), w.acquire(permits(1))
		if _, err := permits(1).TryAcquire(w.ctx); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("P1: a fourth permit of three: %v", err)
		}
		for i, l := range []*holdfast.Lock{other.Mutex("x", nil), other.RWMutex("x", nil).Read, other.Semaphore("x", 4, nil), c.Mutex("x", nil)} {
			if _, err := l.Acquire(w.ctx); !errors.Is(err, holdfast.ErrMismatch) {
				t.Errorf("P10: lock %d on the name of a semaphore of 3: %v", i, err)
			}
		}
		time.AfterFunc(time.Second, func() { w.release(one) })
		time.AfterFunc(time.Minute, func() { w.release(two) })
		if took := w.took(func() { w.release(w.acquire(permits(3))) }); took != time.Minute {
			t.Errorf("P1: all three permits after %v, while one was held till 1m", took)
		}
		w.acquire(other.Mutex("x", nil))
	})
}

// TestUncertainAcquireIsWithdrawn: P6: a request whose reply was lost is withdrawn, however often that fails. The
// driver gets back the handle that it gave. An undone acquire has no minimum hold. When the TTL is over, the store
// has dropped the request by itself, and the withdrawals end (P9).
func TestUncertainAcquireIsWithdrawn(t *testing.T) {
	for _, recovers := range []bool{true, false} {
		inWorld(t, func(w *world) {
			c, f := w.client(nil)
			f.try = func(ctx context.Context, r driver.Request) (driver.Grant, error) {
				_, _ = f.Driver.Try(ctx, r)
				return driver.Grant{Request: r, Handle: "lease-17"}, driver.Uncertain(errStore)
			}
			f.release = func(ctx context.Context, g []driver.Grant) []error {
				if g[0].Handle != "lease-17" {
					t.Errorf("the withdrawal has the handle %v", g[0].Handle)
				}
				return failReleases(ctx, g)
			}
			if _, err := c.Mutex("x", &holdfast.Options{MinHold: time.Hour}).Acquire(w.ctx); !errors.Is(err, holdfast.ErrUncertain) || !errors.Is(err, errStore) {
				t.Errorf("Acquire returned %v", err)
			}
			time.Sleep(10 * time.Second)
			if n := f.releases.Load(); n < 5 {
				t.Errorf("P6: only %d attempts to withdraw in 10 s", n)
			}
			if recovers {
				f.set(func() { f.release = nil })
				time.Sleep(2 * time.Second)
				w.free("x", "P6: after the withdrawal")
				return
			}
			time.Sleep(22 * time.Second)
			n := f.releases.Load()
			time.Sleep(time.Hour)
			if more := f.releases.Load() - n; more > 0 {
				t.Errorf("P9: %d attempts after the TTL", more)
			}
		})
	}
}

// TestUncertainAcquiresAreBounded: a store that does not answer leaves a bounded number of uncertain acquires
// behind. Later acquires fail without asking the store, so they certainly hold nothing. Once the store answers, all
// are withdrawn (P6), and acquires succeed.
func TestUncertainAcquiresAreBounded(t *testing.T) {
	const most = 1 << 14 // as the documentation of Acquire says
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		f.release = failReleases
		f.try = func(ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, _ := f.Driver.Try(ctx, r)
			return driver.Grant{Request: g.Request}, driver.Uncertain(errStore)
		}
		for i := range most + 100 {
			_, err := c.Mutex(fmt.Sprint(i), &holdfast.Options{TTL: time.Hour}).Acquire(w.ctx)
			if !strings.Contains(fmt.Sprint(err), errStore.Error()) || errors.Is(err, holdfast.ErrUncertain) != (i < most) {
				t.Fatalf("acquire %d: %v", i, err)
			}
		}
		time.Sleep(time.Second)
		calls := f.releases.Load()
		time.Sleep(10 * time.Second)
		if n := f.releases.Load() - calls; n < 10 || n > 100 {
			t.Errorf("%d calls in 10 s to withdraw them all; they are repeated each second at the least, and together", n)
		}
		if n := f.tries.Load(); n != most {
			t.Errorf("the store was asked %d times, want %d", n, most)
		}
		f.set(func() { f.release, f.try = nil, nil })
		time.Sleep(2 * time.Second)
		for i := 0; i < most; i += 100 {
			w.free(fmt.Sprint(i), "P6: an uncertain acquire, after the store has answered")
		}
		w.acquire(c.Mutex("one more", nil))
	})
}

// refusing is a store that is queued in at once, and refuses requests without a look at the store.
type refusing struct {
	wrap.Forward
	err       error
	withdrawn atomic.Int32
}

func (r *refusing) Contended(string) bool { return true }

func (r *refusing) Enqueue(context.Context, driver.Request) (driver.Grant, error) {
	return driver.Grant{}, r.err
}

func (r *refusing) Release(ctx context.Context, g []driver.Grant) []error {
	r.withdrawn.Add(int32(len(g)))
	return r.Forward.Release(ctx, g)
}

// TestRefusedIsNotWithdrawn: P10: what the store has certainly not done is not withdrawn, also if the first request
// asks for a place in the queue. An uncertain outcome is.
func TestRefusedIsNotWithdrawn(t *testing.T) {
	for err, want := range map[error]int32{
		driver.ErrUnsupported:      0,
		errors.New("a bad name"):   0,
		driver.Uncertain(errStore): 1,
	} {
		inWorld(t, func(w *world) {
			r := &refusing{Forward: wrap.Forward{Driver: w.store.Client()}, err: err}
			c := w.clientOf(r, nil)
			if _, e := c.Mutex("x", nil).Acquire(w.ctx); !errors.Is(e, err) {
				t.Errorf("Acquire: %v, want %v", e, err)
			}
			_ = c.Close() // it waits for withdrawals
			if n := r.withdrawn.Load(); n != want {
				t.Errorf("after %q there were %d withdrawals, want %d", err, n, want)
			}
		})
	}
}
