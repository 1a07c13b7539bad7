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

// faulty is a driver with faults for one test. Each function that is set is called instead of the
// store; it can call the store by the driver that it is given.
type faulty struct {
	wrap.Forward
	mu      sync.Mutex
	try     func(context.Context, driver.Driver, driver.Request) (driver.Grant, error)
	enqueue func(context.Context, driver.Queuer, driver.Request) (driver.Grant, error)
	wait    func(context.Context, driver.Queuer, driver.Request) (driver.Grant, error)
	renew   func(context.Context, driver.Driver, []driver.Grant) []driver.Renewal
	release func(context.Context, driver.Driver, []driver.Grant) []error
	shard   func(driver.Request) string
	caps    func(driver.Caps) driver.Caps

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

func (f *faulty) Try(ctx context.Context, r driver.Request) (driver.Grant, error) {
	f.mu.Lock()
	fault := f.try
	f.tries.Add(1)
	f.mu.Unlock()
	if fault != nil {
		return fault(ctx, f.Driver, r)
	}
	return f.Driver.Try(ctx, r)
}

func (f *faulty) Enqueue(ctx context.Context, r driver.Request) (driver.Grant, error) {
	f.mu.Lock()
	fault := f.enqueue
	f.mu.Unlock()
	if fault != nil {
		return fault(ctx, f.Forward, r)
	}
	return f.Forward.Enqueue(ctx, r)
}

func (f *faulty) Wait(ctx context.Context, r driver.Request) (driver.Grant, error) {
	f.mu.Lock()
	fault := f.wait
	f.mu.Unlock()
	if fault != nil {
		return fault(ctx, f.Forward, r)
	}
	return f.Forward.Wait(ctx, r)
}

func (f *faulty) Renew(ctx context.Context, g []driver.Grant) []driver.Renewal {
	f.mu.Lock()
	fault := f.renew
	f.renewals.Add(1)
	f.mu.Unlock()
	if fault != nil {
		return fault(ctx, f.Driver, g)
	}
	return f.Driver.Renew(ctx, g)
}

func (f *faulty) Release(ctx context.Context, g []driver.Grant) []error {
	f.mu.Lock()
	fault := f.release
	f.releases.Add(1)
	f.mu.Unlock()
	if fault != nil {
		return fault(ctx, f.Driver, g)
	}
	return f.Driver.Release(ctx, g)
}

func (f *faulty) Lacks(ability any) bool {
	if _, shard := ability.(*driver.Sharder); shard {
		return f.shard == nil
	}
	return f.Forward.Lacks(ability)
}

func (f *faulty) Shard(r driver.Request) string {
	if f.shard != nil {
		return f.shard(r)
	}
	return f.Forward.Shard(r)
}

var errStore = errors.New("the store is out of order")

// failRenewals fails for every grant.
func failRenewals(_ context.Context, _ driver.Driver, g []driver.Grant) []driver.Renewal {
	out := make([]driver.Renewal, len(g))
	for i := range out {
		out[i].Err = errStore
	}
	return out
}

// failReleases fails for every grant.
func failReleases(_ context.Context, _ driver.Driver, g []driver.Grant) []error {
	out := make([]error, len(g))
	for i := range out {
		out[i] = errStore
	}
	return out
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
