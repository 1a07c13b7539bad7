package fallback

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// State is what the breaker thinks of the first store.
type State uint8

// The states.
const (
	// StateClosed: the first store is in use.
	StateClosed State = iota
	// StateOpen: the first store is silent, and is probed every Options.Probe.
	StateOpen
	// StateHalfOpen: the first store has answered a probe, or somebody uses the second. The first is in
	// use, but for names that are in use in the second. A probe without an answer opens the breaker
	// again. Otherwise it closes when nobody uses the second any more.
	StateHalfOpen
)

// String returns "closed", "open" or "half-open".
func (s State) String() string {
	switch s {
	case StateClosed:
		return "closed"
	case StateOpen:
		return "open"
	case StateHalfOpen:
		return "half-open"
	}
	return "unknown state"
}

// ErrSilent: the first store does not answer, and is not asked until it answers a probe. The
// details are in a *SilentError.
var ErrSilent = errors.New("the store does not answer")

// SilentError is ErrSilent with details.
type SilentError struct {
	For time.Duration // for how long the store has been silent
	Err error         // the last error of a request or probe; nil: there was none
}

// Error says for how long the store has been silent, and why.
func (e *SilentError) Error() string {
	text := fmt.Sprintf("%v: no answer for %v", ErrSilent, e.For.Round(time.Second/10))
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Is makes a SilentError match ErrSilent.
func (e *SilentError) Is(target error) bool { return target == ErrSilent }

// Unwrap returns the last error of the store, unless that is the end of its context, which was not
// the caller's.
func (e *SilentError) Unwrap() error {
	if errors.Is(e.Err, context.Canceled) || errors.Is(e.Err, context.DeadlineExceeded) {
		return nil
	}
	return e.Err
}

// isAnswer reports whether a store has answered the question about a lock.
func isAnswer(err error) bool {
	return err == nil || driver.Gone(err) || errors.Is(err, driver.ErrHeld) ||
		errors.Is(err, driver.ErrMismatch) || errors.Is(err, driver.ErrUnsupported)
}

// breaker is the state of the first store. The driver's mutex guards it.
type breaker struct {
	state   State
	changed chan struct{}      // closed at the next change of the state
	epoch   context.Context    // ends when the breaker opens
	open    context.CancelFunc // ends the epoch

	// Suppose requests are under way and none has been answered. Then the silence lasts since asked.
	silent   bool
	asked    driver.Instant
	answered driver.Instant // the last answer
	heard    bool           // there was an answer
	underway int
	err      error // the last error of a request that was not answered

	timer      *time.Timer // checks for silence; nil: there is none
	monitoring bool        // the goroutine of monitor runs
	opened     int         // how often the breaker has opened
}

// begin counts a request to the first store.
func (d *Driver) begin(r driver.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	if !d.silent {
		d.silent, d.asked = true, now
	}
	d.underway++
	d.last = r
	d.startTimerLocked()
}

// startTimerLocked has the silence checked later, unless the monitor does it already.
func (d *Driver) startTimerLocked() {
	if d.timer == nil && !d.monitoring && !d.closed {
		d.timer = time.AfterFunc(d.opts.Silence/2, d.suspect)
	}
}

// end counts the request out, with what the store has said.
func (d *Driver) end(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.underway--
	d.noteLocked(err)
}

// noteLocked takes in an answer, or that there was none.
func (d *Driver) noteLocked(err error) {
	now := d.clock.Now()
	if !isAnswer(err) {
		if d.err == nil || !errors.Is(err, context.Canceled) { // who gave up says less
			d.err = err
		}
		return
	}
	d.heard, d.answered, d.err = true, now, nil
	// While the breaker is open, renewals are still sent: if one is answered, the time until the
	// second store may be used begins anew, because others may have been answered too.
	d.asked = now
	if d.state != StateOpen {
		d.silent = d.underway > 0
	}
}

// suspect is called by the timer. If requests have not been answered for half of Options.Silence,
// it goes on as the monitor.
func (d *Driver) suspect() {
	d.mu.Lock()
	d.timer = nil
	if d.closed || d.monitoring || !d.silent {
		d.mu.Unlock()
		return
	}
	if half := d.opts.Silence / 2; d.clock.Now().Sub(d.asked) < half {
		d.startTimerLocked()
	} else {
		d.startMonitorLocked()
	}
	d.mu.Unlock()
}

// startMonitorLocked starts the goroutine of monitor, if it does not run.
func (d *Driver) startMonitorLocked() {
	if !d.monitoring && !d.closed {
		d.monitoring = true
		d.background.Go(d.monitor)
	}
}

// monitor probes the first store until the breaker is closed and nothing speaks against it.
func (d *Driver) monitor() {
	for {
		d.tellChanges()
		err := d.probe()
		clear := err == nil && d.secondIsClear()
		pause, more := d.judge(err, clear)
		d.tellChanges()
		if !more || !d.sleep(pause) {
			return
		}
	}
}

// judge takes in the outcome of a probe. It returns how long to wait before the next, and false if
// there is no need for another.
func (d *Driver) judge(err error, clear bool) (pause time.Duration, more bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	switch {
	case d.closed:
		d.monitoring = false
		return 0, false
	case d.state == StateOpen && err == nil:
		d.silent = d.underway > 0
		d.turnLocked(StateHalfOpen, nil)
	case d.state == StateHalfOpen && err != nil:
		if !d.silent { // the probe was the first that got no answer
			d.silent, d.asked = true, d.probed
		}
		d.turnLocked(StateOpen, err)
	case d.state == StateHalfOpen && clear:
		d.turnLocked(StateClosed, nil)
	case d.state == StateClosed && d.silent && err != nil:
		left := d.opts.Silence - now.Sub(d.asked)
		if left > 0 {
			return left, true
		}
		d.turnLocked(StateOpen, err)
	}
	if d.state == StateClosed {
		d.monitoring = false
		if d.silent {
			d.startTimerLocked() // others are under way
		}
		return 0, false
	}
	return d.opts.Probe, true
}

// turnLocked changes the state.
func (d *Driver) turnLocked(to State, err error) {
	d.state = to
	close(d.changed)
	d.changed = make(chan struct{})
	if to == StateOpen {
		d.opened++
		d.open()
	} else if d.epoch.Err() != nil {
		d.epoch, d.open = context.WithCancel(context.Background())
	}
	if d.opts.OnChange != nil {
		d.untold = append(d.untold, Change{State: to, Degraded: d.degradedLocked(), Err: err})
	}
}

// tellChanges calls the hook for the changes that it has not been told of. The monitor calls it.
func (d *Driver) tellChanges() {
	d.mu.Lock()
	untold := d.untold
	d.untold = nil
	d.mu.Unlock()
	for _, c := range untold {
		d.opts.OnChange(c)
	}
}

// probe asks the first store something that changes nothing, and withdraws what it may still know
// of requests that have gone to the second. Only an error without an answer is returned.
func (d *Driver) probe() (err error) {
	ctx, cancel := context.WithTimeout(d.life, d.probeWithin())
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the driver panicked: %v", p)
		}
		// A store that answers with an error is not silent.
		d.mu.Lock()
		d.noteLocked(err)
		d.mu.Unlock()
	}()
	first, err := d.reachFirst(ctx)
	if err != nil {
		return err
	}
	grants := d.owed()
	if len(grants) == 0 {
		return nil // it has just been opened
	}
	errs := first.Release(ctx, grants)
	if len(errs) != len(grants) {
		return fmt.Errorf("the driver returned %d results for %d releases", len(errs), len(grants))
	}
	d.paid(grants, errs)
	if last := errs[len(errs)-1]; !isAnswer(last) {
		return last
	}
	return nil
}

// probeWithin is how long a probe may take. One that decides whether the breaker opens may take as
// long as is left of Options.Silence.
func (d *Driver) probeWithin() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	d.probed = now
	if d.state == StateClosed && d.silent {
		return max(d.opts.Silence-now.Sub(d.asked), d.opts.Silence/10)
	}
	return d.opts.Silence
}

// silentLocked returns the error of requests that are refused.
func (d *Driver) silentLocked() error {
	return &SilentError{For: d.clock.Now().Sub(d.asked), Err: d.err}
}

// sleep waits for d, and returns false if the driver is closed first.
func (d *Driver) sleep(pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-d.life.Done():
		d.mu.Lock()
		d.monitoring = false
		d.mu.Unlock()
		return false
	}
}
