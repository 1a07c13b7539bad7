package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/ctxerr"
)

func TestAcquireWaitsAndTryDoesNot(t *testing.T) {
	inWorld(t, func(w *world) {
		a, _ := w.client(nil)
		b, _ := w.client(nil)
		lease := w.acquire(a.Mutex("x", &holdfast.Options{Note: "the first"}))
		_, err := b.Mutex("x", nil).TryAcquire(w.ctx)
		var held *holdfast.HeldError
		if !errors.Is(err, holdfast.ErrHeld) || !errors.As(err, &held) {
			t.Fatalf("TryAcquire of a held lock: %v", err)
		}
		if held.Name != "x" || held.Note != "the first" || held.Token != lease.Token() {
			t.Errorf("the holder is reported as %+v", held)
		}
		time.AfterFunc(time.Minute, func() { _ = lease.Release() })
		if took := w.took(func() { w.acquire(b.Mutex("x", nil)) }); took != time.Minute {
			t.Errorf("P7: the lock was free after 1m, and acquired after %v", took)
		}
	})
}

// TestAcquireGivesUp: if its context ends first, an Acquire returns the error that tells why, and
// leaves nothing behind.
func TestAcquireGivesUp(t *testing.T) {
	reason := errors.New("the user went home")
	inWorld(t, func(w *world) {
		a, _ := w.client(nil)
		b, _ := w.client(nil)
		lease := w.acquire(a.Mutex("x", nil))
		ctx, cancel := context.WithTimeoutCause(w.ctx, time.Minute, reason)
		defer cancel()
		var err error
		if took := w.took(func() { _, err = b.Mutex("x", nil).Acquire(ctx) }); took != time.Minute {
			t.Errorf("gave up after %v", took)
		}
		if held := (*holdfast.HeldError)(nil); !errors.As(err, &held) || held.Token != lease.Token() || held.Note == "" {
			t.Errorf("%q does not name the holder", err)
		}
		for _, want := range []error{context.DeadlineExceeded, reason, holdfast.ErrHeld} {
			if !errors.Is(err, want) {
				t.Errorf("%q is not %q", err, want)
			}
		}
		if errors.Is(err, holdfast.ErrLost) || lease.Err() != nil {
			t.Errorf("the holder was disturbed: %v", lease.Err())
		}
		w.release(lease)
		synctest.Wait()
		w.free("x", "P6: after giving up")
	})
}

func TestContextThatHasEndedAsksNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		ctx, cancel := context.WithCancel(w.ctx)
		cancel()
		if _, err := c.Mutex("x", nil).Acquire(ctx); !errors.Is(err, context.Canceled) ||
			errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("Acquire returned %v", err)
		}
		if f.tries.Load() != 0 {
			t.Error("the store was asked")
		}
	})
}

// P8: inside one client waiters are served in the order in which they came.
func TestArrivalOrder(t *testing.T) {
	inWorld(t, func(w *world) {
		c, _ := w.client(nil)
		lease := w.acquire(c.Mutex("x", nil))
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				l := w.acquire(c.Mutex("x", nil))
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				_ = l.Release()
			})
			synctest.Wait()
		}
		_ = lease.Release()
		wg.Wait()
		if !slices.IsSorted(order) || len(order) != 50 {
			t.Errorf("P8: served in the order %v", order)
		}
	})
}

// P8 between clients: if the head of a client gives up, the next of the same client inherits its place
// in the store's queue.
func TestPlaceIsInherited(t *testing.T) {
	inWorld(t, func(w *world) {
		a, _ := w.client(nil)
		b, _ := w.client(nil)
		c, _ := w.client(nil)
		lease := w.acquire(a.Mutex("x", nil))
		impatient, cancel := context.WithCancel(w.ctx)
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
		enter("b2", b, w.ctx) // comes after c, and inherits b1's place
		cancel()
		synctest.Wait()
		_ = lease.Release()
		wg.Wait()
		if fmt.Sprint(order) != "[b2 c]" {
			t.Errorf("P8: served %v; the place of b1 is before c's", order)
		}
		synctest.Wait()
		w.free("x", "P9")
	})
}

func TestSharedNeighboursGoTogether(t *testing.T) {
	inWorld(t, func(w *world) {
		c, _ := w.client(nil)
		rw := c.RWMutex("x", nil)
		writer := w.acquire(rw.Write)
		var wg sync.WaitGroup
		var mu sync.Mutex
		var readers []*holdfast.Lease
		for range 10 {
			wg.Go(func() {
				l := w.acquire(rw.Read)
				mu.Lock()
				readers = append(readers, l)
				mu.Unlock()
			})
		}
		synctest.Wait()
		_ = writer.Release()
		wg.Wait()
		for _, r := range readers {
			if r.Token() <= writer.Token() || r.Mode() != holdfast.Shared {
				t.Errorf("P3: a reader after writer %d has %v token %d",
					writer.Token(), r.Mode(), r.Token())
			}
		}
		// The last reader frees the name, and none before.
		for i, r := range readers {
			if _, err := rw.Write.TryAcquire(w.ctx); !errors.Is(err, holdfast.ErrHeld) {
				t.Fatalf("P1: a writer beside %d readers: %v", len(readers)-i, err)
			}
			if err := r.Release(); err != nil {
				t.Error(err)
			}
		}
		l, err := rw.Write.TryAcquire(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Release()
	})
}

// Until the store has answered once, its errors are returned; after that the acquire retries while
// the context lasts.
func TestStoreErrors(t *testing.T) {
	inWorld(t, func(w *world) {
		a, _ := w.client(nil)
		b, f := w.client(nil)
		f.set(func() {
			f.try = func(context.Context, driver.Driver, driver.Request) (driver.Grant, error) {
				return driver.Grant{}, errStore
			}
		})
		if _, err := b.Mutex("x", nil).Acquire(w.ctx); !errors.Is(err, errStore) {
			t.Errorf("before the first contact: %v", err)
		}
		f.set(func() { f.try = nil })

		lease := w.acquire(a.Mutex("x", nil))
		ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
		defer cancel()
		result := make(chan error)
		go func() {
			_, err := b.Mutex("x", nil).Acquire(ctx)
			result <- err
		}()
		synctest.Wait()
		fail := func(context.Context, driver.Queuer, driver.Request) (driver.Grant, error) {
			return driver.Grant{}, errStore
		}
		f.set(func() { f.enqueue, f.wait = fail, fail })
		err := <-result
		for _, want := range []error{holdfast.ErrHeld, context.DeadlineExceeded, errStore} {
			if !errors.Is(err, want) {
				t.Errorf("after contact: %q is not %q", err, want)
			}
		}

		// The wait succeeds once the store has recovered.
		go func() {
			result <- b.Mutex("x", nil).Do(w.ctx,
				func(context.Context, *holdfast.Lease) error { return nil })
		}()
		time.Sleep(time.Minute)
		f.set(func() { f.enqueue, f.wait = nil, nil })
		_ = lease.Release()
		if err := <-result; err != nil {
			t.Errorf("after the store has recovered: %v", err)
		}
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
		f.set(func() {
			f.try = func(ctx context.Context, _ driver.Driver, r driver.Request) (driver.Grant, error) {
				return silent(ctx, r)
			}
		})
		why := func(what, name string) {
			t.Helper()
			ctx, cancel := context.WithTimeout(w.ctx, time.Second)
			defer cancel()
			_, err := b.Mutex(name, nil).Acquire(ctx)
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errStore) {
				t.Errorf("%s: %v", what, err)
			}
			if strings.Count(err.Error(), context.DeadlineExceeded.Error()) != 1 {
				t.Errorf("%s: the end of the context is told more than once: %v", what, err)
			}
		}
		why("at first contact", "x")
		f.set(func() { f.try = nil })
		defer w.acquire(a.Mutex("y", nil)).Release()
		f.set(func() {
			f.wait = func(ctx context.Context, _ driver.Queuer, r driver.Request) (driver.Grant, error) {
				return silent(ctx, r)
			}
		})
		why("in the queue", "y")
	})
}

// P6: a request whose reply was lost is withdrawn, however often that fails. The driver gets back the
// handle that it gave.
func TestUncertainAcquireIsWithdrawn(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		f.set(func() {
			f.try = func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
				_, _ = d.Try(ctx, r)
				return driver.Grant{Request: r, Handle: "lease-17"}, driver.Uncertain(errStore)
			}
			f.release = func(ctx context.Context, d driver.Driver, g []driver.Grant) []error {
				if g[0].Handle != "lease-17" {
					t.Errorf("the withdrawal has the handle %v", g[0].Handle)
				}
				return failReleases(ctx, d, g)
			}
		})
		if _, err := c.Mutex("x", &holdfast.Options{MinHold: time.Hour}).Acquire(w.ctx); !errors.Is(err, holdfast.ErrUncertain) || !errors.Is(err, errStore) {
			t.Errorf("Acquire returned %v", err)
		}
		time.Sleep(10 * time.Second)
		if n := f.releases.Load(); n < 5 {
			t.Errorf("P6: only %d attempts to withdraw in 10 s", n)
		}
		f.set(func() { f.release = nil })
		time.Sleep(2 * time.Second)
		w.free("x", "P6: an undone acquire has no minimum hold, and after the withdrawal")
	})
}

// P6: withdrawals end when the store has dropped the request by itself.
func TestWithdrawalEndsWithTheTTL(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		f.set(func() {
			f.try = func(_ context.Context, _ driver.Driver, r driver.Request) (driver.Grant, error) {
				return driver.Grant{Request: r}, driver.Uncertain(errStore)
			}
			f.release = failReleases
		})
		_, _ = c.Mutex("x", nil).Acquire(w.ctx)
		time.Sleep(32 * time.Second)
		n := f.releases.Load()
		time.Sleep(time.Hour)
		if more := f.releases.Load() - n; more > 0 {
			t.Errorf("P9: %d attempts after the TTL", more)
		}
	})
}

// TryAcquire waits for the attempt in flight, and returns at once if the head is known to wait.
func TestTryBehindTheHead(t *testing.T) {
	inWorld(t, func(w *world) {
		a, _ := w.client(nil)
		b, f := w.client(nil)
		lease := w.acquire(a.Mutex("x", nil))
		f.set(func() {
			f.try = func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
				time.Sleep(3 * time.Second)
				return d.Try(ctx, r)
			}
		})
		ctx, cancel := context.WithCancel(w.ctx)
		go func() { _, _ = b.Mutex("x", nil).Acquire(ctx) }()
		synctest.Wait()
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
		cancel()
		_ = lease.Release()
	})
}

// A lost wake-up costs at most one poll (P7).
func TestLostPush(t *testing.T) {
	inWorld(t, func(w *world) {
		a, _ := w.client(nil)
		b, f := w.client(nil)
		f.wait = func(ctx context.Context, _ driver.Queuer, _ driver.Request) (driver.Grant, error) {
			<-ctx.Done()
			return driver.Grant{}, ctx.Err()
		}
		lease := w.acquire(a.Mutex("x", nil))
		time.AfterFunc(10*time.Second, func() { _ = lease.Release() })
		took := w.took(func() { w.acquire(b.Mutex("x", nil)) })
		if took < 10*time.Second || took > 10*time.Second+driver.DefaultPoll {
			t.Errorf("P7: free after 10 s, acquired without a push after %v", took)
		}
	})
}

// A store without a queue is polled. A release by the same client is noticed at once.
func TestPolledStore(t *testing.T) {
	inWorld(t, func(w *world) {
		a, _ := w.client(nil)
		_, f := w.client(nil)
		c := w.clientOf(&polled{f}, nil)
		lease := w.acquire(a.Mutex("x", nil))
		time.AfterFunc(10*time.Second, func() { _ = lease.Release() })
		var mine *holdfast.Lease
		took := w.took(func() { mine = w.acquire(c.Mutex("x", nil)) })
		if took < 10*time.Second || took > 10*time.Second+driver.DefaultPoll {
			t.Errorf("P7: free after 10 s, acquired by polling after %v", took)
		}
		if n := f.tries.Load(); n > 40 {
			t.Errorf("%d polls in 10 s", n)
		}
		time.AfterFunc(10*time.Second, func() { _ = mine.Release() })
		if took := w.took(func() { mine = w.acquire(c.Mutex("x", nil)) }); took != 10*time.Second {
			t.Errorf("the client's own release was noticed after %v, want 10s", took)
		}
	})
}

// polled hides the queue of a driver.
type polled struct{ *faulty }

func (p *polled) Lacks(ability any) bool {
	_, queue := ability.(*driver.Queuer)
	return queue || p.faulty.Lacks(ability)
}

func (p *polled) Caps() driver.Caps {
	caps := p.faulty.Caps()
	caps.Fair = false
	return caps
}

func TestMismatch(t *testing.T) {
	inWorld(t, func(w *world) {
		a, _ := w.client(nil)
		b, _ := w.client(nil)
		lease := w.acquire(a.Semaphore("x", 3, nil))
		for _, l := range []*holdfast.Lock{b.Mutex("x", nil), b.RWMutex("x", nil).Read,
			b.Semaphore("x", 4, nil), a.Mutex("x", nil)} {
			if _, err := l.Acquire(w.ctx); !errors.Is(err, holdfast.ErrMismatch) {
				t.Errorf("P10: %v of a semaphore of 3: %v", l.Name(), err)
			}
		}
		_ = lease.Release()
		w.acquire(b.Mutex("x", nil))
	})
}

func TestSemaphorePermits(t *testing.T) {
	inWorld(t, func(w *world) {
		c, _ := w.client(nil)
		two := w.acquire(c.Semaphore("x", 3, &holdfast.Options{Permits: 2}))
		one := w.acquire(c.Semaphore("x", 3, nil))
		if _, err := c.Semaphore("x", 3, nil).TryAcquire(w.ctx); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("P1: a fourth permit of three: %v", err)
		}
		time.AfterFunc(time.Second, func() { _ = one.Release() })
		time.AfterFunc(time.Minute, func() { _ = two.Release() })
		if took := w.took(func() { w.acquire(c.Semaphore("x", 3, &holdfast.Options{Permits: 3})) }); took != time.Minute {
			t.Errorf("P1: all three permits after %v, while one was held till 1m", took)
		}
	})
}
