package fallback

import (
	"context"
	"errors"
	"fmt"
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
	toSecond, err := d.route(ctx, r)
	switch {
	case err != nil:
		return driver.Grant{}, err
	case toSecond:
		return d.takeSecond(ctx, r)
	}
	d.mu.Lock()
	epoch := d.epoch
	d.mu.Unlock()
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
	err = d.silence() // the breaker has opened and cut the request off
	if d.second == nil {
		return grant, driver.Uncertain(err)
	}
	// By ErrNotHeld package holdfast withdraws the request (P6), and asks anew under another owner. So no owner is
	// ever known to both stores, and a late withdrawal ends no degraded hold.
	return grant, driver.Uncertain(fmt.Errorf("%w (%w there)", err, driver.ErrNotHeld))
}

// route says which store a request for a hold goes to. The error says why it goes to none.
func (d *Driver) route(ctx context.Context, r driver.Request) (toSecond bool, err error) {
	after := d.opts.After
	if after == 0 {
		after = max(r.TTL+r.LockDelay, r.MinHold)
	}
	d.mu.Lock()
	now := d.now()
	open, left := d.open, d.since.Add(after).Sub(now)
	// P1: a client that had no answer for long may have missed that the first store was silent for others.
	d.mixed = d.mixed || d.second != nil && (d.answered == 0 || now.Sub(d.answered) > d.opts.Silence)
	mixed := d.mixed
	d.mu.Unlock()
	switch {
	case open && d.second == nil:
		return false, d.silence()
	case open && left > 0: // P1: a holder in the first store may still trust its lease
		return false, &driver.HeldError{Name: r.Name, ExpiresIn: left, Note: "whoever had it when the store went silent"}
	case mixed && !open:
		return false, d.heldInSecond(ctx, r.Name)
	}
	return open, nil
}

// lookWithin bounds a look at the second store.
const lookWithin = 2 * time.Second

// heldInSecond returns a *HeldError if the name is in use in the second store. A second store that cannot
// tell keeps only names that this driver has there.
func (d *Driver) heldInSecond(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	info, err := forward{Driver: d.second}.Inspect(ctx, name)
	held := &driver.HeldError{Name: name, ExpiresIn: info.ClosedFor}
	if len(info.Holders) > 0 {
		held.Note, held.ExpiresIn = info.Holders[0].Note, info.Holders[0].Expires
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, g := range d.holds {
		if err != nil && g.Name == name && d.now() < g.Since.Add(g.Valid) {
			return held
		}
	}
	if err != nil || info.Idle() {
		return nil
	}
	return held
}

// secondIsEmpty reports whether certainly nobody uses the second store. It forgets holds that are over and
// that nobody has released.
func (d *Driver) secondIsEmpty() bool {
	d.mu.Lock()
	for owner, g := range d.holds {
		if d.now() > g.Since.Add(g.Valid) {
			delete(d.holds, owner)
		}
	}
	empty := len(d.holds) == 0
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(d.life, lookWithin)
	defer cancel()
	for info, err := range (forward{Driver: d.second}).List(ctx, "") {
		empty = empty && err == nil && info.Idle()
	}
	return empty
}

// takeSecond asks the second store. Package holdfast sees the grant without its token.
func (d *Driver) takeSecond(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if _, ok := d.inSecond(r.Owner); ok {
		return driver.Grant{}, driver.ErrNotHeld // there was no answer before: package holdfast withdraws the owner
	}
	sent := d.now()
	g, err := d.second.Try(ctx, r)
	var held *driver.HeldError
	switch {
	case errors.As(err, &held): // without the token, which is none of the first store
		return driver.Grant{}, &driver.HeldError{Name: r.Name, Note: held.Note, ExpiresIn: held.ExpiresIn}
	case errors.Is(err, driver.ErrUncertain):
		g = driver.Grant{Request: r, Since: sent, Valid: r.TTL, Handle: g.Handle}
	case err != nil:
		return driver.Grant{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.holds[g.Owner] = g
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

// recheck is how often a waiter asks again while the second store may be in use.
const recheck = 100 * time.Millisecond

// Wait implements driver.Queuer. It waits in the queue of the first store. While the second may be in use
// it lets the caller ask again soon: the name may be free there.
func (d *Driver) Wait(ctx context.Context, r driver.Request) (driver.Grant, error) {
	d.mu.Lock()
	first, open, mixed := d.first, d.open, d.mixed
	d.mu.Unlock()
	if open && d.second == nil {
		return driver.Grant{}, d.silence()
	}
	if !mixed {
		g, err := forward{Driver: first}.Wait(ctx, r)
		g.Valid = min(g.Valid, 2*d.caps.PollInterval()) // a claim: the store may have longer polls
		return g, err
	}
	if !pause.Sleep(ctx, min(d.caps.PollInterval(), recheck)) {
		return driver.Grant{}, ctx.Err()
	}
	return driver.Grant{}, driver.ErrHeld
}
