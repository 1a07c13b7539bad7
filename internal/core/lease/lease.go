// Package lease is the life of one hold as a state machine: held, in doubt, lost or released.
// Events, each with its time, go in; what to do comes out. It has no clock, goroutine or socket, so
// the tests explore every order of events.
package lease

import (
	"encoding/binary"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// State is a stage in the life of a lease.
type State uint8

// The states. Lost and Released are final.
const (
	Held     State = iota // trusted, and the last renewal went well
	Doubt                 // trusted, but a renewal has failed since
	Lost                  // not trusted any more, for good
	Released              // given back by its holder
)

// Machine is one lease. Make one by Start; the zero value is of no use. Not safe for concurrent
// use.
type Machine struct {
	state   State
	sent    bool           // a renewal is under way
	claim   bool           // a short one: it is renewed even if no other renewal is wanted
	final   bool           // it is no longer renewed: until does not move
	since   driver.Instant // the latest request that until is counted from
	until   driver.Instant // the trust deadline
	renewAt driver.Instant // when to renew next; meaningless while sent
	pace    *Pace
}

// Pace is what leases with the same settings have in common. It does not change.
type Pace struct {
	TTL    time.Duration // asked for
	Every  time.Duration // between renewals; negative: never
	Margin time.Duration // 0: see the function
}

// every returns when a hold that counts for valid, and is trusted for most of it, is renewed: as often as
// asked for. If the store lets a renewal count for a quarter of the TTL only, the lease is renewed four
// times as often, unless a third of the time that it is trusted for is more.
func (p *Pace) every(valid, trusted time.Duration) time.Duration {
	if valid >= p.TTL || p.Every <= 0 {
		return p.Every
	}
	scaled := time.Duration(float64(p.Every) * (float64(valid) / float64(p.TTL)))
	return min(p.Every, max(scaled, trusted/3))
}

// Margin returns how much sooner than the end of a validity the lease stops being trusted, because
// the rates of clocks differ and because time passes between a check of the lease and the act: set,
// or if that is 0, a fiftieth of the validity, at least 5 ms.
func Margin(set, valid time.Duration) time.Duration {
	if set > 0 {
		return set
	}
	return max(valid/50, 5*time.Millisecond)
}

// Start begins the life of a hold that the store granted for valid, counted from since. The hold is
// renewed each time that pace.Every has passed; if that is negative, only to turn a short claim into
// a whole hold.
func Start(now, since driver.Instant, valid time.Duration, claim bool, pace *Pace) Machine {
	m := Machine{pace: pace, claim: claim && valid < pace.TTL}
	m.extend(now, since, valid)
	return m
}

// extend counts the trust deadline from since, which is the sending of a request, never the arrival
// of its answer (P1).
func (m *Machine) extend(now, since driver.Instant, valid time.Duration) {
	trusted := valid - Margin(m.pace.Margin, valid)
	if since < m.since {
		// A later request was answered first. The store may have done the two in either order,
		// this one after the sending of both.
		trusted = min(trusted, m.until.Sub(m.since))
	} else {
		m.since = since
	}
	m.until = m.since.Add(trusted)
	m.renewAt = since.Add(m.pace.every(valid, trusted))
	if left := m.until.Sub(now); m.claim {
		// A claim is renewed in the background, and not at once: most sections are over before
		// a third of it has passed, and cost no renewal at all.
		m.renewAt = now.Add(left / 3)
	}
}

// State returns the state after the last event. Only Trusted compares the deadline with the time.
func (m *Machine) State() State { return m.state }

// Since returns the instant from which the trust is counted: the sending of a request.
func (m *Machine) Since() driver.Instant { return m.since }

// Until returns the trust deadline.
func (m *Machine) Until() driver.Instant { return m.until }

// Trusted reports whether the holder may believe that it holds (P2). If the deadline has passed,
// the lease is lost from this call on.
func (m *Machine) Trusted(now driver.Instant) bool {
	if m.state <= Doubt && now >= m.until {
		m.state = Lost
	}
	return m.state <= Doubt
}

// RenewAt returns when the next renewal is due. It returns false if none is to be sent, or one is
// under way.
func (m *Machine) RenewAt() (driver.Instant, bool) {
	if m.state > Doubt || m.sent || m.final || m.pace.Every < 0 && !m.claim {
		return 0, false
	}
	return m.renewAt, true
}

// Finish ends the renewal: the lease ends at its present trust deadline. The answer to a renewal that is
// under way may start the store's TTL again, but does not make the lease longer.
func (m *Machine) Finish() { m.final = true }

// Final reports whether Finish has been called.
func (m *Machine) Final() bool { return m.final }

// HandedOver tells that the hold was handed over from a lease that trusted it until then. The next
// renewal is due at renew at the latest.
func (m *Machine) HandedOver(until, renew driver.Instant) {
	m.until, m.renewAt = min(m.until, until), min(m.renewAt, renew)
}

// Send tells that a renewal is sent now. It returns false if none should be sent, because the lease
// is over or final or a renewal is under way.
func (m *Machine) Send(now driver.Instant) bool {
	if !m.Trusted(now) || m.sent || m.final {
		return false
	}
	m.sent = true
	return true
}

// Renewed tells that the store has started the TTL again. It returns false if that is of no use: a
// lease that is over is never revived, and a final one is not extended.
func (m *Machine) Renewed(now, since driver.Instant, valid time.Duration) bool {
	m.sent = false
	if !m.Trusted(now) || m.final {
		return false
	}
	m.state = Held
	m.claim = false
	m.extend(now, since, valid)
	return true
}

// Failed tells that a renewal failed, or that its outcome is not known. The lease is in doubt, and
// the nearer the deadline is the sooner comes the next attempt. A final lease stays as it is.
func (m *Machine) Failed(now driver.Instant) {
	m.sent = false
	if m.Trusted(now) && !m.final {
		m.state = Doubt
		m.renewAt = now.Add(max(m.until.Sub(now)/6, minRetry))
	}
}

// minRetry is the least time between the last attempts before the deadline.
const minRetry = 5 * time.Millisecond

// Gone tells that the store has no such hold any more.
func (m *Machine) Gone() {
	m.sent = false
	if m.state <= Doubt {
		m.state = Lost
	}
}

// Release tells that the holder gives the lease back. It returns false if the lease was over
// already.
func (m *Machine) Release(now driver.Instant) bool {
	if !m.Trusted(now) {
		return false
	}
	m.state = Released
	return true
}

// AppendState appends to b what distinguishes this state from others.
func (m *Machine) AppendState(b []byte, now driver.Instant) []byte {
	flags := int64(m.state)
	for i, flag := range []bool{m.sent, m.claim, m.final} {
		if flag {
			flags |= 1 << (4 + i)
		}
	}
	for _, n := range []int64{
		flags, int64(m.since - now), int64(m.until - now), int64(m.renewAt - now),
	} {
		b = binary.AppendVarint(b, n)
	}
	return b
}
