package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/wrap"
	"github.com/holdfastlock/holdfast/memlock"
)

// virtualClock follows the time of a synctest bubble. Ahead is the time for
// which the host was suspended: boot time that package time does not see.
type virtualClock struct {
	start time.Time
	ahead atomic.Int64
}

func (c *virtualClock) Now() driver.Instant {
	return driver.Instant(time.Since(c.start)) + driver.Instant(c.ahead.Load())
}

func (c *virtualClock) suspend(d time.Duration) { c.ahead.Add(int64(d)) }

// world is a store and a clock in virtual time.
type world struct {
	*testing.T
	ctx   context.Context
	clock *virtualClock
	store *memlock.Store
}

// inWorld runs a test in virtual time.
func inWorld(t *testing.T, test func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		clock := &virtualClock{start: time.Now()}
		test(&world{
			T: t, ctx: t.Context(), clock: clock,
			store: memlock.NewStore(&memlock.Options{Clock: clock}),
		})
	})
}

// client makes a client that is closed at the end of the test.
func (w *world) client(o *holdfast.ClientOptions) (*holdfast.Client, *faulty) {
	w.Helper()
	f := &faulty{Forward: wrap.Forward{Driver: w.store.Client()}}
	return w.clientOf(f, o), f
}

// clientOf makes a client of a driver that is closed at the end of the test.
func (w *world) clientOf(d driver.Driver, o *holdfast.ClientOptions) *holdfast.Client {
	w.Helper()
	if o == nil {
		o = &holdfast.ClientOptions{}
	}
	o.Clock = w.clock
	c, err := holdfast.New(d, o)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = c.Close() })
	return c
}

// acquire takes a lock or fails the test.
func (w *world) acquire(l *holdfast.Lock) *holdfast.Lease {
	w.Helper()
	lease, err := l.Acquire(w.ctx)
	if err != nil {
		w.Fatal(err)
	}
	return lease
}

// free fails the test unless the store knows nothing of the name.
func (w *world) free(name, why string) {
	w.Helper()
	d := w.store.Client()
	defer d.Close()
	info, err := d.(driver.Operator).Inspect(w.ctx, name)
	if err != nil || !info.Idle() {
		w.Errorf("%s: the store still has %+v (%v)", why, info, err)
	}
}

// took returns how long f takes in virtual time.
func (w *world) took(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

// asks, renews and releases are what a driver does.
type (
	asks     = func(context.Context, driver.Request) (driver.Grant, error)
	renews   = func(context.Context, []driver.Grant) []driver.Renewal
	releases = func(context.Context, []driver.Grant) []error
)

// faulty is a driver with faults for one test. Each function that is set is called instead of the
// store's, which the test reaches by f.Driver and f.Forward.
type faulty struct {
	wrap.Forward
	mu                 sync.Mutex
	try, enqueue, wait asks
	renew              renews
	release            releases
	shard              func(driver.Request) string
	caps               func(driver.Caps) driver.Caps

	tries, renewals, releases atomic.Int32 // calls
}

// set changes the faults while the driver is in use.
func (f *faulty) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *faulty) Caps() driver.Caps {
	if f.caps != nil {
		return f.caps(f.Driver.Caps())
	}
	return f.Driver.Caps()
}

// ask returns the fault, or what the store does where there is none.
func (f *faulty) ask(fault *asks, store asks) asks {
	f.mu.Lock()
	defer f.mu.Unlock()
	if *fault != nil {
		return *fault
	}
	return store
}

func (f *faulty) Try(ctx context.Context, r driver.Request) (driver.Grant, error) {
	f.tries.Add(1)
	return f.ask(&f.try, f.Driver.Try)(ctx, r)
}

func (f *faulty) Enqueue(ctx context.Context, r driver.Request) (driver.Grant, error) {
	return f.ask(&f.enqueue, f.Forward.Enqueue)(ctx, r)
}

func (f *faulty) Wait(ctx context.Context, r driver.Request) (driver.Grant, error) {
	return f.ask(&f.wait, f.Forward.Wait)(ctx, r)
}

func (f *faulty) Renew(ctx context.Context, g []driver.Grant) []driver.Renewal {
	f.renewals.Add(1)
	f.mu.Lock()
	fault := f.renew
	f.mu.Unlock()
	if fault == nil {
		fault = f.Driver.Renew
	}
	return fault(ctx, g)
}

func (f *faulty) Release(ctx context.Context, g []driver.Grant) []error {
	f.releases.Add(1)
	f.mu.Lock()
	fault := f.release
	f.mu.Unlock()
	if fault == nil {
		fault = f.Driver.Release
	}
	return fault(ctx, g)
}

func (f *faulty) Lacks(ability any) bool {
	if _, shard := ability.(*driver.Sharder); shard {
		return f.shard == nil
	}
	return f.Forward.Lacks(ability)
}

func (f *faulty) Shard(r driver.Request) string { return f.shard(r) }

var errStore = errors.New("the store is out of order")

func failAsks(context.Context, driver.Request) (driver.Grant, error) { return driver.Grant{}, errStore }

func failRenewals(_ context.Context, g []driver.Grant) []driver.Renewal {
	return slices.Repeat([]driver.Renewal{{Err: errStore}}, len(g))
}

func failReleases(_ context.Context, g []driver.Grant) []error {
	return slices.Repeat([]error{errStore}, len(g))
}

// slowRenewals is a driver that needs that long for a batch, and obeys the context.
func (f *faulty) slowRenewals(latency time.Duration) renews {
	return func(ctx context.Context, g []driver.Grant) []driver.Renewal {
		select {
		case <-time.After(latency):
			return f.Driver.Renew(ctx, g)
		case <-ctx.Done():
			return failRenewals(ctx, g)
		}
	}
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

// opens returns when the name can be taken again, in virtual time from now.
func (w *world) opens(name string) time.Duration {
	w.Helper()
	c, _ := w.client(nil)
	return w.took(func() { w.release(w.acquire(c.Mutex(name, nil))) })
}

// ledger notes who works under which lease, and what is wrong with that.
type ledger struct {
	mu        sync.Mutex
	holders   []*holdfast.Lease
	exclusive holdfast.Token // of the last exclusive hold
	last      holdfast.Token // of all
	broken    bool           // by an operator: others may get the name before the holder hears of it
	problems  []string
}

func (l *ledger) problem(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.problems = append(l.problems, fmt.Sprintf(format, args...))
}

// work begins under a lease: an exclusive holder works alone (P1), and the token is higher than those
// before (P3).
func (l *ledger) work(who string, lease *holdfast.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lease.Err() != nil {
		return
	}
	alone := lease.Mode() == holdfast.Exclusive
	for _, other := range l.holders {
		if (alone || other.Mode() == holdfast.Exclusive) && other.Err() == nil && !l.broken {
			l.problems = append(l.problems, fmt.Sprintf("P1: %s got %v beside %v", who, lease, other))
		}
	}
	if token := lease.Token(); token <= l.exclusive || alone && token <= l.last {
		l.problems = append(l.problems, fmt.Sprintf("P3: %s got %v after tokens %d and %d", who, lease, l.exclusive, l.last))
	}
	if l.last = max(l.last, lease.Token()); alone {
		l.exclusive = lease.Token()
	}
	l.holders = append(l.holders, lease)
}

// done ends the work under a lease, and releases it.
func (l *ledger) done(lease *holdfast.Lease) {
	l.mu.Lock()
	l.holders = slices.DeleteFunc(l.holders, func(other *holdfast.Lease) bool { return other == lease })
	l.mu.Unlock()
	_ = lease.Release()
}
