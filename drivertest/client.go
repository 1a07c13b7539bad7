package drivertest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

// clientCases test locks of package holdfast over the driver, as users have them. All other
// themes test the driver itself.
var clientCases = []testCase{
	{name: "do", run: clientDo},
	{name: "nesting is a deadlock", run: clientNesting},
	{name: "acquire's context does not end the hold", run: clientContext},
	{name: "acquire waits for the release", run: clientWaits},
	{name: "a timed-out acquire leaves nothing", timed: true, run: clientTimeout},
	{name: "close releases", run: clientClose},
	{name: "several as one", run: clientMulti},
	{name: "readers and writers", need: needs{Shared: true}, run: clientReaders},
	{name: "a semaphore", need: needs{Slots: true}, run: clientSemaphore},
	{name: "renewals outlive the TTL", timed: true, run: clientRenews},
	{name: "a broken hold is lost", need: breaker, run: clientBroken},
	{name: "a hold that is cut off is lost in time", run: clientCut},
	{name: "no update is lost", run: clientCounter},
	{name: "local hand-over",
		need: needs{Fencing: true, can: opQueue | opOperator},
		run:  clientLocalHandOver},
}

// locks returns a client of package holdfast, closed when the case ends.
func (t *trial) locks() *holdfast.Client {
	t.Helper()
	return t.locksOver(t.h.Open(t.TB))
}

func (t *trial) locksOver(d driver.Driver) *holdfast.Client {
	t.Helper()
	c, err := holdfast.New(d, &holdfast.ClientOptions{Clock: t.h.Clock})
	if err != nil {
		t.Fatalf("P10: holdfast.New over the driver: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("P9: closing a client: %v", err)
		}
	})
	return c
}

// patient returns the options of locks whose TTL does not pass during the case.
func (t *trial) patient() *holdfast.Options { return &holdfast.Options{TTL: t.long} }

// acquire acquires a lock that must be free or become free.
func (t *trial) acquire(l *holdfast.Lock, why string) *holdfast.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, 3*t.poll+t.slack)
	defer cancel()
	lease, err := l.Acquire(ctx)
	if err != nil {
		t.Fatalf("%s: %v", why, err)
	}
	return lease
}

// taken asserts that TryAcquire finds a lock held.
func (t *trial) taken(l *holdfast.Lock, why string) {
	t.Helper()
	lease, err := l.TryAcquire(t.ctx)
	if err == nil {
		t.Errorf("%s", why)
		lease.Release()
	} else if !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("P1: TryAcquire of a held lock returned %v, not ErrHeld", err)
	}
}

// eventually waits until done returns true, which it must within three polls.
func (t *trial) eventually(what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(3*t.poll + t.slack); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not in time", what)
		}
	}
}

func (t *trial) released(l interface{ Release() error }) {
	t.Helper()
	if err := l.Release(); err != nil {
		t.Errorf("P4: Release of a live lease: %v", err)
	}
}

func clientDo(t *trial) {
	a, b := t.locks(), t.locks()
	wrong := errors.New("the work failed")
	err := a.Mutex(t.name, t.patient()).Do(t.ctx, func(ctx context.Context, lease *holdfast.Lease) error {
		if lease.Err() != nil || ctx.Err() != nil {
			t.Errorf("P2: a lease begins with %v, its context with %v", lease.Err(), ctx.Err())
		}
		if t.caps.Fencing && lease.Token() == 0 {
			t.Errorf("P3: a lease of a store with fencing tokens has none")
		}
		t.taken(b.Mutex(t.name, t.patient()), "P1: a second client was granted a lock in use by Do")
		return wrong
	})
	if !errors.Is(err, wrong) {
		t.Errorf("P2: Do returned %v, not the work's error", err)
	}
	t.released(t.acquire(b.Mutex(t.name, t.patient()), "P4: Do did not release the lock"))
}

func clientNesting(t *trial) {
	a := t.locks()
	lock := a.Mutex(t.name, t.patient())
	err := lock.Do(t.ctx, func(ctx context.Context, lease *holdfast.Lease) error {
		if _, err := lock.Acquire(ctx); !errors.Is(err, holdfast.ErrDeadlock) {
			t.Errorf("P10: a nested Acquire returned %v, not ErrDeadlock", err)
		}
		joins := t.patient()
		joins.Reentrant = true
		inner, err := a.Mutex(t.name, joins).Acquire(ctx)
		if err != nil {
			t.Errorf("P10: a reentrant Acquire returned %v", err)
			return nil
		}
		if inner.Token() != lease.Token() {
			t.Errorf("P3: a reentrant Acquire has token %d, the hold that it joined %d",
				inner.Token(), lease.Token())
		}
		t.released(inner)
		if lease.Err() != nil {
			t.Errorf("P4: the inner Release ended the outer hold: %v", lease.Err())
		}
		return nil
	})
	if err != nil {
		t.Errorf("P4: Do: %v", err)
	}
}

func clientContext(t *trial) {
	a, b := t.locks(), t.locks()
	ctx, cancel := context.WithCancel(t.ctx)
	lease, err := a.Mutex(t.name, t.patient()).Acquire(ctx)
	if err != nil {
		t.Fatalf("P7: Acquire of a free lock: %v", err)
	}
	cancel()
	t.taken(b.Mutex(t.name, t.patient()), "P11: the end of Acquire's context freed the lock")
	if err := lease.Renew(t.ctx); err != nil || lease.Err() != nil {
		t.Errorf("P11: the end of Acquire's context ended the lease: %v, %v", err, lease.Err())
	}
	t.released(lease)
}

func clientWaits(t *trial) {
	a, b := t.locks(), t.locks()
	lease := t.acquire(a.Mutex(t.name, t.patient()), "P7: Acquire of a free lock")
	waits := make(chan *holdfast.Lease, 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		next, err := b.Mutex(t.name, t.patient()).Acquire(t.ctx)
		if err != nil {
			t.Errorf("P7: a waiting Acquire: %v", err)
		}
		waits <- next
	})
	time.Sleep(5 * time.Millisecond) // let it wait; it must be granted either way
	t.released(lease)
	select {
	case next := <-waits:
		if next != nil {
			if t.caps.Fencing && next.Token() <= lease.Token() {
				t.Errorf("P3: the next lease has token %d after %d", next.Token(), lease.Token())
			}
			t.released(next)
		}
	case <-time.After(2*t.poll + t.slack):
		t.Errorf("P7: a waiting Acquire was not granted the released lock within %v", 2*t.poll+t.slack)
	}
}

func clientTimeout(t *trial) {
	a, b, c := t.locks(), t.locks(), t.locks()
	lease := t.acquire(a.Mutex(t.name, t.patient()), "P7: Acquire of a free lock")
	ctx, cancel := context.WithTimeout(t.ctx, 30*time.Millisecond)
	defer cancel()
	if _, err := b.Mutex(t.name, t.patient()).Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("P6: an Acquire that timed out behind a holder returned %v, not DeadlineExceeded", err)
	}
	// It is withdrawn in the background, not left until the store drops it,
	// which takes two polls.
	if t.can.has(opOperator) {
		end := time.Now().Add(t.poll * 3 / 2)
		for {
			asked := time.Now()
			info, err := c.Inspect(t.ctx, t.name)
			end = end.Add(time.Since(asked)) // a slow answer says nothing of the time before it
			if err == nil && len(info.Waiters) == 0 {
				break
			}
			if time.Now().After(end) {
				t.Errorf("P6: an Acquire that timed out still waits: %+v, %v", info, err)
				break
			}
			time.Sleep(t.tick())
		}
	}
	t.released(lease)
	t.released(t.acquire(c.Mutex(t.name, t.patient()), "P6: an Acquire that timed out holds the lock"))
}

func clientClose(t *trial) {
	a, b := t.locks(), t.locks()
	lease := t.acquire(a.Mutex(t.name, t.patient()), "P7: Acquire of a free lock")
	if err := a.Close(); err != nil {
		t.Errorf("P9: closing a client with a lease: %v", err)
	}
	if !errors.Is(lease.Err(), holdfast.ErrReleased) {
		t.Errorf("P2: after Close the lease says %v, not ErrReleased", lease.Err())
	}
	t.released(t.acquire(b.Mutex(t.name, t.patient()), "P4: Close did not release the lock"))
}

func clientMulti(t *trial) {
	a, b := t.locks(), t.locks()
	one, two := a.Mutex(t.name+"/1", t.patient()), b.Mutex(t.name+"/2", t.patient())
	both, err := holdfast.All(two, one).TryAcquire(t.ctx)
	if err != nil {
		t.Fatalf("P7: two free locks as one: %v", err)
	}
	t.taken(b.Mutex(t.name+"/1", t.patient()), "P1: the first of two locks held as one was granted again")
	t.taken(a.Mutex(t.name+"/2", t.patient()),
		"P1: the second of two locks held as one was granted again")
	t.released(both)
	held := t.acquire(b.Mutex(t.name+"/2", t.patient()),
		"P4: two locks held as one were not both released")
	if _, err := holdfast.All(one, two).TryAcquire(t.ctx); !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("P1: two locks as one, of which one is held, returned %v, not ErrHeld", err)
	}
	t.released(t.acquire(b.Mutex(t.name+"/1", t.patient()), "P6: a failed acquire of two locks kept one"))
	t.released(held)
}

func clientReaders(t *trial) {
	a, b := t.locks(), t.locks()
	one, two := a.RWMutex(t.name, t.patient()), b.RWMutex(t.name, t.patient())
	r1 := t.acquire(one.Read, "P7: a reader of a free lock")
	r2 := t.acquire(two.Read, "P7: a second reader")
	t.taken(two.Write, "P1: a writer was let in beside readers")
	t.released(r1)
	t.released(r2)
	w := t.acquire(two.Write, "P7: a writer after the readers")
	t.taken(one.Read, "P1: a reader was let in beside a writer")
	t.released(w)
}

func clientSemaphore(t *trial) {
	a, b := t.locks(), t.locks()
	one, two := a.Semaphore(t.name, 2, t.patient()), b.Semaphore(t.name, 2, t.patient())
	s1, s2 := t.acquire(one, "P7: a slot of a free semaphore"), t.acquire(two, "P7: the second slot")
	t.taken(one, "P1: a semaphore of 2 gave three slots")
	t.released(s1)
	t.released(t.acquire(two, "P7: a slot that was given back"))
	t.released(s2)
}

// briefOptions returns the options of locks whose TTL passes during the case.
func (t *trial) briefOptions() *holdfast.Options { return &holdfast.Options{TTL: t.ttl} }

// clientRenews: a lease that is renewed outlives its TTL. A lease that was lost while this
// machine or the store stood still for long, so that another client too had to wait, proves nothing. So there are
// several attempts.
func clientRenews(t *trial) {
	a, b := t.locks(), t.locks()
	o := &holdfast.Options{TTL: min(3*t.ttl, t.long)}
	const attempts = 5
	for range attempts {
		lease := t.acquire(a.Mutex(t.name, o), "P7: Acquire of a free lock")
		stood := time.Duration(0) // the longest that this machine or the store stood still
		for begun := time.Now(); time.Since(begun) < o.TTL*3/2 && lease.Err() == nil; {
			before := time.Now()
			time.Sleep(t.ttl / 50)
			if other, err := b.Mutex(t.name+"/other", t.patient()).TryAcquire(t.ctx); err == nil {
				other.Release()
			}
			stood = max(stood, time.Since(before))
		}
		if err := lease.Err(); err != nil && stood < t.ttl/4 {
			t.Errorf("P2: a lease that could be renewed in time was lost: %v", err)
			return
		}
		other, refused := b.Mutex(t.name, t.patient()).TryAcquire(t.ctx)
		if refused == nil {
			other.Release()
		}
		if lease.Err() == nil && !errors.Is(refused, holdfast.ErrHeld) {
			t.Errorf("P1: beside a lease that is renewed another was granted, or refused by %v, not ErrHeld",
				refused)
		}
		if err := lease.Release(); !errors.Is(err, holdfast.ErrLost) && !errors.Is(err, holdfast.ErrUncertain) {
			if err != nil {
				t.Errorf("P4: Release of a live lease: %v", err)
			}
			return
		}
	}
	t.Errorf("P2: in each of %d attempts a lease was lost that is renewed", attempts)
}

func clientBroken(t *trial) {
	a, b := t.locks(), t.locks()
	o := &holdfast.Options{TTL: min(4*t.ttl, t.long)} // a driver that does not notify tells by a renewal
	if t.h.Untimed {
		o = t.patient()
	}
	lease := t.acquire(a.Mutex(t.name, o), "P7: Acquire of a free lock")
	ctx, cancel := lease.WithContext(t.ctx)
	defer cancel()
	if err := b.Break(t.ctx, t.name, lease.Token()); err != nil {
		t.Fatalf("P4: breaking a hold by its token: %v", err)
	}
	if t.h.Untimed {
		lease.Renew(t.ctx) // its error is that of lease.Err
	}
	select {
	case <-lease.Done():
	case <-time.After(o.TTL + t.slack):
		t.Fatalf("P2: a holder did not learn within its TTL that its hold was broken")
	}
	<-ctx.Done()
	for what, err := range map[string]error{"Err": lease.Err(), "the context's cause": context.Cause(ctx)} {
		if !errors.Is(err, holdfast.ErrLost) || !errors.Is(err, holdfast.ErrBroken) {
			t.Errorf("P2: of a broken hold %s is %v, not ErrLost because of ErrBroken", what, err)
		}
	}
	if err := lease.Release(); !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("P2: Release of a broken hold returned %v, not ErrLost", err)
	}
	t.released(t.acquire(b.Mutex(t.name, t.patient()), "P4: a broken hold did not free the lock"))
}

// clientCut: a holder that cannot renew stops trusting its hold before another is granted.
func clientCut(t *trial) {
	d, wire := t.wire()
	a, b := t.locksOver(d), t.locks()
	t.Cleanup(wire.Heal) // before the client is closed, which would wait for the store
	lease := t.acquire(a.Mutex(t.name, t.briefOptions()), "P7: Acquire of a free lock")
	ctx, cancel := lease.WithContext(t.ctx)
	defer cancel()
	wire.Cut()
	next, err := b.Mutex(t.name, t.patient()).Acquire(t.ctx)
	if lease.Err() == nil {
		t.Errorf("P1: a lock was granted while its holder, cut off, still trusted it")
	}
	if err != nil {
		t.Fatalf("P5: Acquire behind a holder that is cut off: %v", err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(t.slack):
		t.Fatalf("P2: the work's context outlived the hold")
	}
	if !errors.Is(lease.Err(), holdfast.ErrLost) || !errors.Is(context.Cause(ctx), holdfast.ErrLost) {
		t.Errorf("P2: of a hold that was cut off Err is %v and the cause %v, not ErrLost",
			lease.Err(), context.Cause(ctx))
	}
	t.released(next)
}

// clientCounter: 16 goroutines on 4 clients increment a number that only the lock protects.
// Each reads it, waits for a moment and writes it if it still trusts its hold. If two held
// the lock at the same time, an update would be lost. On a machine that stands still a
// claim may be lost by right, and is not written.
func clientCounter(t *trial) {
	const clients, goroutines, rounds = 4, 16, 5
	var value, updates, last atomic.Int64
	var wg sync.WaitGroup
	var locks []*holdfast.Lock
	for range clients {
		locks = append(locks, t.locks().Mutex(t.name, t.patient()))
	}
	for i := range goroutines {
		wg.Go(func() {
			for range rounds {
				err := locks[i%clients].Do(t.ctx, func(_ context.Context, lease *holdfast.Lease) error {
					read := value.Load()
					time.Sleep(50 * time.Microsecond)
					if err := lease.Err(); err != nil {
						return err
					}
					value.Store(read + 1)
					updates.Add(1)
					if token := int64(lease.Token()); t.caps.Fencing && token <= last.Swap(token) {
						t.Errorf("P3: token %d of a hold is not higher than the one before", token)
					}
					return nil
				})
				// A store that is too slow to answer a release has its outcome unknown.
				if err != nil && !errors.Is(err, holdfast.ErrLost) && !errors.Is(err, holdfast.ErrUncertain) {
					t.Errorf("P7: Do under contention: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	if updates.Load() == 0 {
		t.Errorf("P7: none of %d rounds got the lock and kept it", goroutines*rounds)
	}
	if got, want := value.Load(), updates.Load(); got != want {
		t.Errorf("P1: of %d updates under the lock %d were lost", want, want-got)
	}
}
