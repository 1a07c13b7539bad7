package drivertest

import (
	"context"
	"time"

	"github.com/holdfastlock/holdfast"
)

// deafCases keep all replies from a client whose requests arrive. A request may keep alive what the client has in the
// store. Then the name stays closed for as long as the client asks (P5, P7).
var deafCases = []testCase{
	{name: "the name of a deaf holder opens", run: deafHolder},
	{name: "a deaf waiter gives way", need: needs{can: opQueue | opOperator}, run: deafWaiter},
}

// opensWithin bounds the wait for a name: only a machine that is very busy needs so long.
const opensWithin = time.Minute

// deafHolder asks for other names too, which may be kept by the same session.
func deafHolder(t *trial) {
	d, wire := t.wire()
	deaf, other := t.locksOver(d), t.locks()
	lease := t.acquire(deaf.Mutex(t.name, t.briefOptions()), "P7: Acquire of a free lock")
	defer t.goesOn(wire, deaf.Mutex(t.freshName(), t.briefOptions()))()
	wire.HoldReplies()
	t.opens(other, "P5: the name of a deaf holder does not open")
	if lease.Err() == nil {
		t.Errorf("P1: a lock was granted while its holder, deaf, still trusted it")
	}
}

func deafWaiter(t *trial) {
	d, wire := t.wire()
	deaf, other, observer := t.locksOver(d), t.locks(), t.open()
	lease := t.acquire(other.Mutex(t.name, t.patient()), "P7: Acquire of a free lock")
	defer t.goesOn(wire, deaf.Mutex(t.name, t.briefOptions()))()
	t.eventually("P7: a waiter takes a place", func() bool { return len(t.inspect(observer).Waiters) > 0 })
	wire.HoldReplies()
	t.released(lease)
	t.opens(other, "P7: a deaf waiter keeps the name")
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

// opens acquires and releases the case's name.
func (t *trial) opens(c *holdfast.Client, why string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, opensWithin)
	defer cancel()
	lease, err := c.Mutex(t.name, t.patient()).Acquire(ctx)
	if err != nil {
		t.Errorf("%s: %v", why, err)
		return
	}
	t.released(lease)
}
