// Package life is the specification of what a store does that may have forgotten holds: it grants nothing until
// all of them have ended. It has no clock, lock or socket, so the tests explore it together with the engine.
//
// A takes a lock at a primary, which dies before its replica knows the lock. The replica takes over, and B asks
// it. Without the rule B gets the lock while A trusts it.
//
// A store's memory has a life. Whenever the store may have lost something that it had acknowledged, it has another
// life afterwards. How a driver knows the life is its own matter. In a new life the store grants nothing until the
// longest TTL has passed since it can have forgotten last: not to a request, not by a release that finds waiters, and
// not when a hold lapses. Renewals and releases of holds that the store still knows go on.
package life

import (
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Rules are what all clients of a store agree on.
type Rules struct {
	MaxTTL time.Duration // the longest TTL, with the lock-delay
	// Lag is for how long a primary that is cut off goes on to grant beside the one that has taken over from it. 0: it
	// does not.
	Lag time.Duration
}

// Drift is by how much the clocks of client and store may differ at the end of a time that they measure together: a
// hundredth of it, and 2 ms because a store may round.
func Drift(d time.Duration) time.Duration { return d/100 + 2*time.Millisecond }

// Wait is how long after the end of a life all holds of it have ended.
func (r Rules) Wait() time.Duration { return r.MaxTTL + Drift(r.MaxTTL) + r.Lag }

// Memory is what a store remembers of its life. It is kept with the holds, so it is as old as they are. The zero value
// is that of a store that has never been used, or that has forgotten everything.
type Memory struct {
	Life  string         // in which it was written
	Opens driver.Instant // the store grants from then on, by its own clock
	Wait  time.Duration  // the longest of all clients
}

// Closed returns for how long a store in that life grants nothing. It reports false if the store has to begin the
// life, or to begin it again, because its clock was set back.
func (m Memory) Closed(life string, now driver.Instant) (time.Duration, bool) {
	return max(0, m.Opens.Sub(now)), m.Life == life && m.Opens.Sub(now) <= m.Wait
}

// Begin returns the memory of a store in that life, which can have forgotten something until since, at the latest. A
// life that has begun goes on; only a client whose Wait is longer than those before makes it last longer.
func (m Memory) Begin(life string, since, now driver.Instant, r Rules) Memory {
	wait := max(m.Wait, r.Wait())
	switch {
	case m.Life != life || m.Opens.Sub(now) > m.Wait:
		m.Opens = since.Add(wait)
	case now < m.Opens:
		m.Opens = m.Opens.Add(wait - m.Wait)
	}
	m.Life, m.Wait = life, wait
	return m
}
