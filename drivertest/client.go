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

// clientCases test locks of package holdfast over the driver, as users have them. All other themes test the driver
// itself.
var clientCases = []testCase{
	{name: "no update is lost", alone: clientCounter},
}

// locks returns a client of package holdfast, closed when the case ends.
func (t *trial) locks(d driver.Driver) *holdfast.Client {
	t.Helper()
	c, err := holdfast.New(d, nil)
	if err != nil {
		t.Fatalf("P10: holdfast.New over the driver: %v", err)
	}
	return closes(t, c)
}

// patient returns the options of locks whose TTL does not pass during the case.
func (t *trial) patient() *holdfast.Options { return &holdfast.Options{TTL: t.long} }

// acquire acquires a lock that must be free or become free.
func (t *trial) acquire(l *holdfast.Lock, why string) *holdfast.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, time.Minute)
	defer cancel()
	lease, err := l.Acquire(ctx)
	if err != nil {
		t.Fatalf("%s: %v", why, err)
	}
	return lease
}

func (t *trial) released(l *holdfast.Lease) {
	t.Helper()
	if err := l.Release(); err != nil {
		t.Errorf("P4: Release of a live lease: %v", err)
	}
}

// clientCounter: 16 goroutines on 4 clients increment a number that only the lock protects. Each reads it, waits for
// a moment and writes it if it still trusts its hold. On a machine that stands still a claim may be lost by right,
// and is not written.
func clientCounter(t *trial) {
	const goroutines, rounds = 16, 5
	var clients []*holdfast.Client
	for range 4 {
		clients = append(clients, t.locks(t.h.Open(t.TB)))
	}
	var value, updates, last atomic.Int64
	var wg sync.WaitGroup
	for i := range goroutines {
		lock := clients[i%4].Mutex(t.name, t.patient())
		wg.Go(func() {
			for range rounds {
				err := lock.Do(t.ctx, func(_ context.Context, lease *holdfast.Lease) error {
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

// deafCases keep all replies from a client whose requests arrive. A request may keep alive what the client has in the
// store. Then the name would stay closed for as long as the client asks (P5, P7).
var deafCases = []testCase{
	// The holder asks for other names too, which may be kept by the same session.
	{name: "the name of a deaf holder opens", alone: func(t *trial) {
		d, wire := t.wire()
		deaf, other, brief := t.locks(d), t.locks(t.h.Open(t.TB)), &holdfast.Options{TTL: t.ttl}
		lease := t.acquire(deaf.Mutex(t.name, brief), "P7: Acquire of a free lock")
		defer t.goesOn(wire, deaf.Mutex(t.freshName(), brief))()
		wire.HoldReplies()
		next := t.acquire(other.Mutex(t.name, t.patient()), "P5: the name of a deaf holder does not open")
		if lease.Err() == nil {
			t.Errorf("P1: a lock was granted while its holder, deaf, still trusted it")
		}
		t.released(next)
	}},
	{name: "a deaf waiter gives way", need: opQueue | opOperator, alone: func(t *trial) {
		d, wire := t.wire()
		deaf, other, observer := t.locks(d), t.locks(t.h.Open(t.TB)), t.open()
		lease := t.acquire(other.Mutex(t.name, t.patient()), "P7: Acquire of a free lock")
		defer t.goesOn(wire, deaf.Mutex(t.name, &holdfast.Options{TTL: t.ttl}))()
		if !t.within(3*t.poll+t.slack, func() bool { return len(t.inspect(observer).Waiters) > 0 }) {
			t.Fatalf("P7: a waiter takes no place")
		}
		wire.HoldReplies()
		t.released(lease)
		t.released(t.acquire(other.Mutex(t.name, t.patient()), "P7: a deaf waiter keeps the name"))
	}},
}

// goesOn acquires and releases a lock again and again until stop is called.
func (t *trial) goesOn(wire Transport, l *holdfast.Lock) (stop func()) {
	ctx, cancel := context.WithCancel(t.ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for ctx.Err() == nil {
			if lease, err := l.Acquire(ctx); err == nil {
				lease.Release()
			}
			time.Sleep(t.tick())
		}
	}()
	return func() {
		cancel()
		wire.Heal()
		<-stopped
	}
}
