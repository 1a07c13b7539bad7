package drivertest

import (
	"context"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

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
