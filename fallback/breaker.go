package fallback

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/pause"
)

// ErrSilent: the first store does not answer, and is not asked until it answers a probe.
var ErrSilent = errors.New("the store does not answer")

// breaker is what is known of the first store. The driver's mutex guards it.
type breaker struct {
	open  bool
	epoch context.Context    // ends when the breaker opens
	end   context.CancelFunc // ends the epoch

	since    driver.Instant // the first request since the last answer; 0: every request was answered
	answered driver.Instant // the last answer; 0: none yet
	underway int            // requests
	err      error          // the last probe's that was not answered

	// mixed says that others may have locks in the second store: since the breaker opened, or since this
	// client had no answer for Options.Silence. It ends when the second store is empty.
	mixed bool
}

// Status returns how the driver fares at present.
func (d *Driver) Status() Change {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := Change{Open: d.open, Degraded: len(d.holds)}
	if d.open {
		c.Silent, c.Err = d.opts.Clock.Now().Sub(d.since), d.err
	}
	return c
}

// silence returns the error of requests that are refused because the first store is silent. The error does
// not wrap its cause: the end of a context of the driver's own would look like that of the caller's.
func (d *Driver) silence() error {
	s := d.Status()
	return fmt.Errorf("%w: no answer for %v: %v", ErrSilent, s.Silent.Round(time.Second/10), s.Err)
}

// isAnswer reports whether a store has answered the question about a lock.
func isAnswer(err error) bool {
	return err == nil || driver.Gone(err) || errors.Is(err, driver.ErrHeld) ||
		errors.Is(err, driver.ErrMismatch) || errors.Is(err, driver.ErrUnsupported)
}

// ask calls f with the first driver, whatever the breaker's state, and returns what f does: an outcome for each
// grant. The store has answered if one of them is an answer.
func (d *Driver) ask(grants []driver.Grant, f func(forward) []driver.Renewal) []driver.Renewal {
	d.mu.Lock()
	first := d.first
	if first == nil {
		d.mu.Unlock()
		return slices.Repeat([]driver.Renewal{{Err: d.silence()}}, len(grants))
	}
	if d.since == 0 {
		d.since = d.opts.Clock.Now()
	}
	d.underway++
	d.last = grants[0].Request
	d.mu.Unlock()
	out := f(forward{Driver: first})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.underway--
	if slices.ContainsFunc(out, func(r driver.Renewal) bool { return isAnswer(r.Err) }) {
		d.noteAnswerLocked()
	}
	return out
}

// noteAnswerLocked notes that the first store has answered. P1: an open breaker still sends renewals. If one is
// answered, others may have been answered too, so the time until the second store may be used begins anew.
func (d *Driver) noteAnswerLocked() {
	d.answered = d.opts.Clock.Now()
	if d.since = 0; d.underway > 0 || d.open {
		d.since = d.answered
	}
}

// watch moves the breaker until the driver is closed.
func (d *Driver) watch() {
	for told, next := false, time.Duration(0); ; next = d.check() {
		if c := d.Status(); c.Open != told && d.opts.OnChange != nil {
			told = c.Open
			d.opts.OnChange(c)
		}
		if !pause.Sleep(d.life, next) {
			return
		}
	}
}

// check probes the first store if the breaker is open, or if half of Options.Silence has passed without an
// answer. It moves the breaker, and returns when to check again.
func (d *Driver) check() (next time.Duration) {
	next, half := d.opts.Silence/5, d.opts.Silence/2
	d.mu.Lock()
	open, mixed, passed := d.open, d.mixed, time.Duration(0)
	if d.since != 0 {
		passed = d.opts.Clock.Now().Sub(d.since)
	}
	d.mu.Unlock()
	if !open && mixed {
		d.endMixed()
	}
	if !open && passed < half {
		return min(next, half-passed)
	}
	err := d.probe(half)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case open && err == nil:
		d.open = false // since is now the probe's answer: the next check asks again
		d.epoch, d.end = context.WithCancel(context.Background())
	case !open && err != nil && d.since != 0 && d.opts.Clock.Now().Sub(d.since) >= d.opts.Silence:
		d.open, d.mixed = true, true
		d.end()
	}
	return next
}

// probe asks the first store to forget a request that was never made. It returns an error if there was no
// answer: a store that refuses locks, but can still forget, is not silent.
func (d *Driver) probe(within time.Duration) error {
	ctx, cancel := context.WithTimeout(d.life, within)
	defer cancel()
	first, err := d.reach(ctx)
	d.mu.Lock()
	r := d.last
	d.mu.Unlock()
	if err == nil && r.Name != "" { // else the store has just been opened
		r.Owner, r.MinHold, r.Tokens = rand.Text(), 0, 0
		err = first.Release(ctx, []driver.Grant{{Request: r}})[0]
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err = err; !isAnswer(err) {
		return err
	}
	d.noteAnswerLocked()
	return nil
}
