package fallback

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

func newOwner() string { return rand.Text() }

// Try implements driver.Driver.
func (d *Driver) Try(ctx context.Context, r driver.Request) (driver.Grant, error) {
	return d.take(ctx, r, false)
}

// Enqueue implements driver.Queuer.
func (d *Driver) Enqueue(ctx context.Context, r driver.Request) (driver.Grant, error) {
	return d.take(ctx, r, true)
}

// take is Try or, with queue, Enqueue.
func (d *Driver) take(ctx context.Context, r driver.Request, queue bool) (driver.Grant, error) {
	for {
		toSecond, err := d.route(ctx, r)
		switch {
		case err != nil:
			return driver.Grant{}, err
		case toSecond:
			return d.takeSecond(ctx, r, queue)
		}
		grant, cut, err := d.takeFirst(ctx, r, queue)
		if !cut || isAnswer(err) || ctx.Err() != nil {
			return grant, err
		}
		if d.second == nil {
			silent := d.silence()
			if errors.Is(err, driver.ErrUncertain) {
				silent = driver.Uncertain(silent)
			}
			return grant, silent
		}
		// The breaker has opened meanwhile: the request begins anew. It is not sent to the first
		// store again under this owner, which may be granted or withdrawn there.
		d.owe(r.Owner)
	}
}

// isOpen reports whether the breaker is open.
func (d *Driver) isOpen() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state == StateOpen
}

// silence returns the error of requests that are refused.
func (d *Driver) silence() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.silentLocked()
}

// route says which store a request for a hold goes to. The error says why it goes to none.
func (d *Driver) route(ctx context.Context, r driver.Request) (toSecond bool, err error) {
	if d.second == nil {
		if d.isOpen() {
			return false, d.silence()
		}
		return false, nil
	}
	d.mu.Lock()
	state := d.state
	known := d.leases[r.Owner] != nil
	missed := !d.heard || d.clock.Now().Sub(d.answered) > d.opts.Silence
	left := d.asked.Add(d.after(&r)).Sub(d.clock.Now())
	d.mu.Unlock()
	switch {
	case known:
		return true, nil
	case state == StateOpen && left > 0:
		d.owe(r.Owner)
		return false, &driver.HeldError{
			Name: r.Name, ExpiresIn: left,
			Note: "whoever had it when the store went silent",
		}
	case state == StateOpen:
		d.owe(r.Owner)
		return true, nil
	case state == StateClosed && !(missed && d.secondInUse(ctx)):
		return false, nil
	}
	return false, d.heldInSecond(ctx, r)
}

// after is how long after the silence began a request may be taken from the second store.
func (d *Driver) after(r *driver.Request) time.Duration {
	if d.opts.After != 0 {
		return d.opts.After
	}
	return max(r.TTL+r.LockDelay, r.MinHold)
}

// secondInUse looks whether anybody uses the second store, because this client may have missed that
// the first was silent. If so, the breaker is half-open from now on.
func (d *Driver) secondInUse(ctx context.Context) bool {
	used, err := d.inUse(ctx)
	if err != nil || !used {
		return false // a second store that cannot tell does not keep the first from being used
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state == StateClosed {
		d.turnLocked(StateHalfOpen, nil)
		d.startMonitorLocked()
	}
	return true
}

// lookWithin bounds a look at the second store.
const lookWithin = 2 * time.Second

// inUse reports whether anybody uses the second store.
func (d *Driver) inUse(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	for info, err := range (driver.Forward{Driver: d.second}).List(ctx, "") {
		if err != nil {
			return false, err
		}
		if !info.Idle() {
			return true, nil
		}
	}
	return false, nil
}

// secondIsClear reports whether nobody uses the second store.
func (d *Driver) secondIsClear() (clear bool) {
	if d.second == nil {
		return true
	}
	d.mu.Lock()
	d.pruneLocked()
	left := len(d.leases)
	d.mu.Unlock()
	if left > 0 {
		return false
	}
	defer func() {
		if recover() != nil { // the driver's: this is in the background
			clear = false
		}
	}()
	used, err := d.inUse(d.life)
	return err == nil && !used
}

// heldInSecond returns a *HeldError if the name is in use in the second store. It must not be taken
// from the first then, whoever has it.
func (d *Driver) heldInSecond(ctx context.Context, r driver.Request) error {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	info, err := driver.Forward{Driver: d.second}.Inspect(ctx, r.Name)
	held := &driver.HeldError{Name: r.Name, Queued: len(info.Waiters), ExpiresIn: info.ClosedFor}
	switch {
	case err != nil && d.holdsName(r.Name):
		return held
	case err != nil || info.Idle():
		return nil // a second store that cannot tell does not keep the first from being used
	}
	for i, h := range info.Holders {
		if i == 0 {
			held.Note, held.ExpiresIn = h.Note, h.Expires
		}
		held.ExpiresIn = min(held.ExpiresIn, h.Expires)
	}
	return held
}

// holdsName reports whether this driver itself has a hold on a name in the second store.
func (d *Driver) holdsName(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	for _, l := range d.leases {
		if l.request.Name == name && l.held && now < l.until {
			return true
		}
	}
	return false
}

// takeFirst asks the first store. The request is cut off when the breaker opens.
func (d *Driver) takeFirst(
	ctx context.Context, r driver.Request, queue bool,
) (grant driver.Grant, cut bool, err error) {
	first, err := d.firstNow()
	if err != nil {
		return driver.Grant{}, false, err
	}
	ctx, epoch, cancel := d.untilOpen(ctx)
	defer cancel()
	d.mu.Lock()
	placed := d.asking[r.Owner].Owner != ""
	_, owed := d.debts[r.Owner]
	switch {
	case owed && queue:
		err = driver.ErrNotHeld // its place is about to be withdrawn: it needs another owner
	case owed:
		err = driver.ErrHeld
	case d.second != nil && !placed:
		d.asking[r.Owner] = driver.Grant{Request: r, Stray: true}
	}
	d.mu.Unlock()
	if err != nil {
		return driver.Grant{}, false, err
	}
	err = d.count(r, func() (err error) {
		if queue {
			grant, err = driver.Forward{Driver: first}.Enqueue(ctx, r)
		} else {
			grant, err = first.Try(ctx, r)
		}
		return err
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	switch g, ok := d.asking[r.Owner]; {
	case !ok:
	case err == nil, !queue && !placed && !errors.Is(err, driver.ErrUncertain):
		delete(d.asking, r.Owner) // it is granted, or certainly not under way
	case grant.Handle != nil:
		g.Handle = grant.Handle
		d.asking[r.Owner] = g
	}
	return grant, epoch.Err() != nil, err
}

// untilOpen returns a context that also ends when the breaker opens, and one that ends only then.
func (d *Driver) untilOpen(parent context.Context) (ctx, epoch context.Context, end func()) {
	d.mu.Lock()
	epoch = d.epoch
	d.mu.Unlock()
	ctx, cancel := context.WithCancelCause(parent)
	stop := context.AfterFunc(epoch, func() { cancel(ErrSilent) })
	return ctx, epoch, func() {
		stop()
		cancel(nil)
	}
}

// count calls f, which asks the first store, and takes in what that says.
func (d *Driver) count(r driver.Request, f func() error) error {
	d.begin(r)
	err := errors.New("the driver panicked")
	defer func() { d.end(err) }()
	err = f()
	return err
}

// takeSecond asks the second store.
func (d *Driver) takeSecond(ctx context.Context, r driver.Request, queue bool) (driver.Grant, error) {
	d.mu.Lock()
	l := d.leases[r.Owner]
	placed := l != nil
	if !placed {
		l = &degradedLease{request: r}
		d.leases[r.Owner] = l
	}
	l.until = d.clock.Now().Add(r.TTL)
	d.mu.Unlock()
	var grant driver.Grant
	var err error
	if queue {
		grant, err = driver.Forward{Driver: d.second}.Enqueue(ctx, r)
	} else {
		grant, err = d.second.Try(ctx, r)
	}
	switch {
	case err == nil:
		d.hold(l, grant)
		return d.outer(grant), nil
	case !queue && !placed && !errors.Is(err, driver.ErrUncertain):
		d.forget(r.Owner)
	case grant.Handle != nil:
		d.mu.Lock()
		l.handle = grant.Handle
		d.mu.Unlock()
	}
	return driver.Grant{Request: r}, withoutToken(err)
}

// withoutToken hides the token of the second store's holder: it would not be one of this store.
func withoutToken(err error) error {
	var held *driver.HeldError
	if !errors.As(err, &held) || held.Token == 0 {
		return err
	}
	hidden := *held
	hidden.Token = 0
	return &hidden
}

// recheck is how often a waiter asks whether a name is still in use in the second store.
const recheck = 100 * time.Millisecond

// Wait implements driver.Queuer. It waits in the store in which the owner has its place. It returns
// ErrHeld when the breaker opens: the next Enqueue then goes to the second store.
func (d *Driver) Wait(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if l := d.lease(r.Owner); l != nil {
		grant, err := driver.Forward{Driver: d.second}.Wait(ctx, r)
		if err != nil {
			return driver.Grant{}, withoutToken(err)
		}
		d.hold(l, grant)
		return d.outer(d.claim(grant)), nil
	}
	d.mu.Lock()
	state, changed, first, closed := d.state, d.changed, d.first, d.closed
	_, placed := d.asking[r.Owner]
	d.mu.Unlock()
	switch {
	case closed:
		return driver.Grant{}, driver.ErrClosed
	case d.second == nil && state == StateOpen:
		return driver.Grant{}, d.silence()
	case d.second == nil, placed && state != StateOpen && first != nil:
		waiting, epoch, cancel := d.untilOpen(ctx)
		defer cancel()
		grant, err := driver.Forward{Driver: first}.Wait(waiting, r)
		if err != nil && epoch.Err() != nil {
			err = driver.ErrHeld // ask again: by then the breaker is open
		}
		if err == nil {
			d.mu.Lock()
			delete(d.asking, r.Owner)
			d.mu.Unlock()
			grant = d.claim(grant)
		}
		return grant, err
	}
	// It has no place: the name is closed until the first store's holds are over, or in use in the
	// second store.
	pause := d.caps.PollInterval()
	if state == StateHalfOpen {
		pause = min(pause, recheck)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-d.life.Done():
		return driver.Grant{}, driver.ErrClosed
	case <-ctx.Done():
		return driver.Grant{}, ctx.Err()
	}
	return driver.Grant{}, driver.ErrHeld
}

// claim shortens a claim to what Caps.Poll allows: the stores may have longer polls.
func (d *Driver) claim(g driver.Grant) driver.Grant {
	if d.second != nil {
		g.Valid = min(g.Valid, 2*d.caps.PollInterval())
	}
	return g
}

// Contended implements driver.ContentionHinter.
func (d *Driver) Contended(name string) bool {
	d.mu.Lock()
	state, first := d.state, d.first
	d.mu.Unlock()
	if state == StateClosed && first != nil {
		return driver.Forward{Driver: first}.Contended(name)
	}
	return false
}
