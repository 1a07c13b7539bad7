// Package alarm calls a function at an instant of a driver.Clock.
//
// Timers of package time stand still while the host is suspended, so after a
// night with the lid closed they are late by a night. On Linux an alarm on the
// host's clock is a timerfd on CLOCK_BOOTTIME, which has expired when the
// process runs again (P2). Elsewhere, and on an injected clock, it is a timer
// of package time, and whoever needs the exact instant reads the clock.
package alarm

import (
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Alarm calls its function at or soon after the instant that was set. It is
// lazy: moving the alarm back, or turning it off, costs nothing and leads to a
// call that finds nothing to do. Safe for concurrent use.
type Alarm struct {
	clock driver.Clock
	fire  func()

	mu     sync.Mutex
	timer  timer
	armed  bool
	at     driver.Instant
	closed bool
}

// timer is the thing that fires. set replaces what was set before; a duration
// that is not positive means at once.
type timer interface {
	set(d time.Duration)
	close()
}

// New returns an alarm that is off. The function is called on a goroutine of
// the alarm's, never by Set, and never twice at the same time on Linux; it
// should be quick.
func New(clock driver.Clock, fire func()) *Alarm {
	return &Alarm{clock: clock, fire: fire}
}

// Set makes sure that the function is called at the instant or soon after. An
// alarm that is set for an earlier instant already stays as it is: the function
// is called then, and sets the alarm again for what is left to do.
func (a *Alarm) Set(at driver.Instant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || a.armed && a.at <= at && !a.late() {
		return
	}
	a.armed, a.at = true, at
	if a.timer == nil {
		a.timer = newTimer(a.clock, a.ring)
	}
	a.timer.set(at.Sub(a.clock.Now()))
}

// late reports whether the alarm should have gone off already and has not,
// because its timer stood still while the host was suspended.
func (a *Alarm) late() bool {
	_, standsStill := a.timer.(portable)
	return standsStill && a.at < a.clock.Now()
}

func (a *Alarm) ring() {
	a.mu.Lock()
	a.armed = false
	closed := a.closed
	a.mu.Unlock()
	if !closed {
		a.fire()
	}
}

// Close turns the alarm off for good. A call of the function that is under way
// goes on.
func (a *Alarm) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	if a.timer != nil {
		a.timer.close()
	}
}

// portable is a timer of package time.
type portable struct{ t *time.Timer }

func newPortable(fire func()) timer {
	t := time.AfterFunc(time.Hour, fire)
	t.Stop()
	return portable{t}
}

func (p portable) set(d time.Duration) { p.t.Reset(max(0, d)) }
func (p portable) close()              { p.t.Stop() }
