// Package timer calls a function at an instant of a driver.Clock.
//
// Timers of package time stand still while the host is suspended, so after a
// night with the lid closed they are late by a night. On Linux a timer on the
// host's clock is a timerfd on CLOCK_BOOTTIME, which has expired when the
// process runs again (P2). Elsewhere, and on an injected clock, it is a timer
// of package time, and whoever needs the exact instant reads the clock.
package timer

import (
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Timer calls its function at or soon after the instant that was set. It is
// lazy: moving the timer back, or turning it off, costs nothing and leads to a
// call that finds nothing to do. Safe for concurrent use.
type Timer struct {
	clock driver.Clock
	fire  func()

	mu     sync.Mutex
	source source
	armed  bool
	at     driver.Instant
	closed bool
}

// source is the thing that fires. set replaces what was set before; a duration
// that is not positive means at once.
type source interface {
	set(d time.Duration)
	close()
}

// New returns a timer that is off. The function is called on a goroutine of
// the timer's, never by Set, and never twice at the same time on Linux; it
// should be quick.
func New(clock driver.Clock, fire func()) *Timer {
	return &Timer{clock: clock, fire: fire}
}

// Set makes sure that the function is called at the instant or soon after. A
// timer that is set for an earlier instant already stays as it is: the function
// is called then, and sets the timer again for what is left to do.
func (t *Timer) Set(at driver.Instant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.armed && t.at <= at && !t.late() {
		return
	}
	t.armed, t.at = true, at
	if t.source == nil {
		t.source = newSource(t.clock, t.expired)
	}
	t.source.set(at.Sub(t.clock.Now()))
}

// late reports whether the timer should have gone off already and has not,
// because its source stood still while the host was suspended.
func (t *Timer) late() bool {
	_, standsStill := t.source.(portable)
	return standsStill && t.at < t.clock.Now()
}

func (t *Timer) expired() {
	t.mu.Lock()
	t.armed = false
	closed := t.closed
	t.mu.Unlock()
	if !closed {
		t.fire()
	}
}

// Close turns the timer off for good. A call of the function that is under way
// goes on.
func (t *Timer) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if t.source != nil {
		t.source.close()
	}
}

// portable is a timer of package time.
type portable struct{ t *time.Timer }

func newPortable(fire func()) source {
	t := time.AfterFunc(time.Hour, fire)
	t.Stop()
	return portable{t}
}

func (p portable) set(d time.Duration) { p.t.Reset(max(0, d)) }
func (p portable) close()              { p.t.Stop() }
