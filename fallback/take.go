package fallback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/pause"
)

// Try implements driver.Driver.
func (d *Driver) Try(ctx context.Context, r driver.Request) (driver.Grant, error) {
	return d.take(ctx, r, forward.Try)
}

// Enqueue implements driver.Queuer. The queue is that of the first store: waiters for a name in the second
// try again.
func (d *Driver) Enqueue(ctx context.Context, r driver.Request) (driver.Grant, error) {
	return d.take(ctx, r, forward.Enqueue)
}

// take asks the store that is in use for the name: the first by ask, the second by Try.
func (d *Driver) take(
	ctx context.Context, r driver.Request, ask func(forward, context.Context, driver.Request) (driver.Grant, error),
) (grant driver.Grant, err error) {
	epoch, toSecond, err := d.route(ctx, r)
	switch {
	case err != nil:
		return driver.Grant{}, err
	case toSecond:
		return d.takeSecond(ctx, r)
	}
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(epoch, cancel)()
	err = d.ask([]driver.Grant{{Request: r}}, func(at forward) []driver.Renewal {
		grant, err = ask(at, asking, r)
		return []driver.Renewal{{Err: err}}
	})[0].Err
	if isAnswer(err) || ctx.Err() != nil || epoch.Err() == nil {
		return grant, err
	}
	// The breaker has opened and cut the request off. By ErrNotHeld package holdfast withdraws the request (P6), and
	// asks anew under another owner. So no owner is ever known to both stores, and a late withdrawal ends no
	// degraded hold.
	return grant, driver.Uncertain(fmt.Errorf("%w (%w there)", d.silence(), driver.ErrNotHeld))
}

// route says which store a request goes to, in which of the breaker's epochs, or by an error why it goes to none.
func (d *Driver) route(ctx context.Context, r driver.Request) (epoch context.Context, toSecond bool, err error) {
	after := cmp.Or(d.opts.After, max(r.TTL+r.LockDelay, r.MinHold))
	d.mu.Lock()
	now := d.opts.Clock.Now()
	epoch, open, left := d.epoch, d.open, d.since.Add(after).Sub(now)
	// P1: a client that had no answer for long may have missed that the first store was silent for others.
	d.mixed = d.mixed || d.answered == 0 || now.Sub(d.answered) > d.opts.Silence
	mixed := d.mixed
	d.mu.Unlock()
	switch {
	case open && left > 0: // P1: a holder in the first store may still trust its lease
		return epoch, false, &driver.HeldError{Name: r.Name, ExpiresIn: left, Note: "whoever had it when the store went silent"}
	case mixed && !open:
		return epoch, false, d.heldInSecond(ctx, r.Name)
	}
	return epoch, open, nil
}

const lookWithin = 2 * time.Second // bounds a look at the second store

// heldInSecond returns a *HeldError if the name is in use in the second store. A second store that does not
// answer keeps no name from being taken in the first.
func (d *Driver) heldInSecond(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	info, err := forward{Driver: d.second}.Inspect(ctx, name)
	if err != nil || info.Idle() {
		return nil
	}
	held := &driver.HeldError{Name: name, ExpiresIn: info.ClosedFor}
	if len(info.Holders) > 0 {
		held.Note, held.ExpiresIn = info.Holders[0].Note, info.Holders[0].Expires
	}
	return held
}

// endMixed ends mixed if nobody uses the second store. The holds of before that have ended then, and are
// forgotten (P9).
func (d *Driver) endMixed() {
	d.mu.Lock()
	before := maps.Clone(d.holds)
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(d.life, lookWithin)
	defer cancel()
	for info, err := range (forward{Driver: d.second}).List(ctx, "") {
		if err != nil || !info.Idle() {
			return
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for owner := range before {
		delete(d.holds, owner)
	}
	d.mixed = len(d.holds) > 0
}

// takeSecond asks the second store. Package holdfast sees the grant without its token.
func (d *Driver) takeSecond(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if _, ok := d.inSecond(r.Owner); ok {
		return driver.Grant{}, driver.ErrNotHeld // there was no answer before: package holdfast withdraws the owner
	}
	g, err := d.second.Try(ctx, r)
	var held *driver.HeldError
	switch {
	case errors.As(err, &held): // without the token, which is none of the first store
		return driver.Grant{}, &driver.HeldError{Name: r.Name, Note: held.Note, ExpiresIn: held.ExpiresIn}
	case errors.Is(err, driver.ErrUncertain):
		g = driver.Grant{Request: r, Handle: g.Handle}
	case err != nil:
		return driver.Grant{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.holds[g.Owner], d.mixed = g, true // P1: the second store may have been seen empty before the answer came
	g.Token, g.Block, g.Handle, g.Degraded = 0, 0, nil, true
	return g, err
}

// inSecond returns the hold that the second store has, or may have, of an owner.
func (d *Driver) inSecond(owner string) (g driver.Grant, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	g, ok = d.holds[owner]
	return g, ok
}

// Wait implements driver.Queuer. It waits in the queue of the first store. While the second may be in use
// it lets the caller ask again soon: the name may be free there.
func (d *Driver) Wait(ctx context.Context, r driver.Request) (driver.Grant, error) {
	d.mu.Lock()
	first, mixed := d.first, d.mixed
	d.mu.Unlock()
	if !mixed {
		g, err := forward{Driver: first}.Wait(ctx, r)
		g.Valid = min(g.Valid, 2*d.caps.PollInterval()) // a claim: the store may have longer polls
		return g, err
	}
	pause.Sleep(ctx, min(d.caps.PollInterval(), 100*time.Millisecond))
	return driver.Grant{}, driver.ErrHeld
}
