package fallback

import (
	"context"
	"errors"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// degradedLease is what the second store may know of an owner.
type degradedLease struct {
	request driver.Request
	held    bool
	token   driver.Token // of the second store, if it is held
	block   int
	handle  any
	until   driver.Instant // when the second store has forgotten it, unless it is renewed
}

// degradedLocked returns how many holds the driver has in the second store.
func (d *Driver) degradedLocked() int {
	n := 0
	for _, l := range d.leases {
		if l.held {
			n++
		}
	}
	return n
}

// lease returns what the second store may know of an owner, or nil.
func (d *Driver) lease(owner string) *degradedLease {
	if d.second == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.leases[owner]
}

// outer returns a grant of the second store as it is shown to package holdfast: without its token.
func (d *Driver) outer(g driver.Grant) driver.Grant {
	g.Token, g.Block, g.Handle, g.Degraded = 0, 0, nil, true
	return g
}

// inner returns a degraded grant as the second store knows it.
func (d *Driver) inner(g driver.Grant, l *degradedLease) driver.Grant {
	d.mu.Lock()
	defer d.mu.Unlock()
	g.Token, g.Block, g.Handle, g.Degraded = l.token, l.block, l.handle, false
	return g
}

// hold notes a grant of the second store.
func (d *Driver) hold(l *degradedLease, g driver.Grant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !l.held {
		l.held = true
		d.granted++
	}
	l.token, l.block, l.handle = g.Token, g.Block, g.Handle
	l.until = g.Since.Add(g.Valid)
}

// forget drops what the second store does not know any more.
func (d *Driver) forget(owner string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.leases, owner)
}

// pruneLocked drops leases that the second store must have forgotten, and of which nobody has said
// so: a lease that was lost by the clock and never released.
func (d *Driver) pruneLocked() {
	now := d.clock.Now()
	for owner, l := range d.leases {
		if now.Sub(l.until) > l.request.TTL+l.request.LockDelay+time.Minute {
			delete(d.leases, owner)
		}
	}
}

// maxDebts bounds how much is withdrawn when the first store answers again. The rest ends by
// itself: a place after two polls, a hold with its TTL.
const maxDebts = 1 << 14

// owe moves what the first store may know of an owner to what is withdrawn later: from now on the
// owner asks the second store.
func (d *Driver) owe(owner string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if g, ok := d.asking[owner]; ok {
		d.oweLocked(owner, g)
	}
}

func (d *Driver) oweLocked(owner string, g driver.Grant) {
	delete(d.asking, owner)
	if len(d.debts) < maxDebts {
		d.debts[owner] = g
	}
}

// debtBatch is how much one probe withdraws.
const debtBatch = 256

// owed returns what a probe withdraws. The last is a request that was never sent.
func (d *Driver) owed() []driver.Grant {
	d.mu.Lock()
	defer d.mu.Unlock()
	var grants []driver.Grant
	for _, g := range d.debts {
		if len(grants) == debtBatch {
			break
		}
		grants = append(grants, g)
	}
	if d.last.Name != "" {
		r := d.last
		r.Owner, r.MinHold, r.Tokens = newOwner(), 0, 0
		grants = append(grants, driver.Grant{Request: r})
	}
	return grants
}

// paid forgets what the first store has confirmed.
func (d *Driver) paid(grants []driver.Grant, errs []error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, g := range grants {
		if errs[i] == nil || driver.Gone(errs[i]) {
			delete(d.debts, g.Owner)
		}
	}
}

// split sorts grants by store, and returns the places of each part.
func (d *Driver) split(grants []driver.Grant) (first, second []int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, g := range grants {
		if d.leases[g.Owner] != nil {
			second = append(second, i)
		} else {
			first = append(first, i)
		}
	}
	return first, second
}

// pick returns the grants at some places.
func pick(grants []driver.Grant, at []int) []driver.Grant {
	if len(at) == len(grants) {
		return grants
	}
	some := make([]driver.Grant, len(at))
	for i, j := range at {
		some[i] = grants[j]
	}
	return some
}

// Renew implements driver.Driver. Each grant is renewed in the store that has it.
func (d *Driver) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	first, second := d.split(grants)
	out := make([]driver.Renewal, len(grants))
	if len(second) > 0 {
		some := pick(grants, second)
		for i, r := range d.renewSecond(ctx, some) {
			out[second[i]] = r
		}
	}
	if len(first) > 0 {
		for i, r := range d.renewFirst(ctx, pick(grants, first)) {
			out[first[i]] = r
		}
	}
	return out
}

var errTooFew = errors.New("the driver returned too few results")

func (d *Driver) renewSecond(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	inner := make([]driver.Grant, len(grants))
	for i, g := range grants {
		inner[i] = g
		if l := d.lease(g.Owner); l != nil {
			inner[i] = d.inner(g, l)
		}
	}
	out := d.second.Renew(ctx, inner)
	for len(out) < len(grants) {
		out = append(out, driver.Renewal{Err: errTooFew})
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, g := range grants {
		l := d.leases[g.Owner]
		switch {
		case l == nil:
		case driver.Gone(out[i].Err):
			l.held = false // the release will forget it
		case out[i].Err == nil:
			l.until = out[i].Since.Add(out[i].Valid)
		}
	}
	return out[:len(grants)]
}

func (d *Driver) renewFirst(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	out := make([]driver.Renewal, 0, len(grants))
	first, err := d.firstNow()
	if err == nil {
		err = errTooFew
		d.count(grants[0].Request, func() (err error) {
			out = first.Renew(ctx, grants)
			for _, r := range out {
				if err = r.Err; isAnswer(err) {
					return nil
				}
			}
			return err
		})
	}
	for len(out) < len(grants) {
		out = append(out, driver.Renewal{Err: err})
	}
	return out[:len(grants)]
}

// Release implements driver.Driver. Each grant is released in the store that may know it.
func (d *Driver) Release(ctx context.Context, grants []driver.Grant) []error {
	first, second := d.split(grants)
	out := make([]error, len(grants))
	if len(second) > 0 {
		for i, err := range d.releaseSecond(ctx, pick(grants, second)) {
			out[second[i]] = err
		}
	}
	if len(first) > 0 {
		for i, err := range d.releaseFirst(ctx, pick(grants, first)) {
			out[first[i]] = err
		}
	}
	return out
}

func (d *Driver) releaseSecond(ctx context.Context, grants []driver.Grant) []error {
	inner := make([]driver.Grant, len(grants))
	for i, g := range grants {
		inner[i] = g
		if l := d.lease(g.Owner); l != nil {
			inner[i] = d.inner(g, l)
		}
	}
	errs := d.second.Release(ctx, inner)
	for len(errs) < len(grants) {
		errs = append(errs, errTooFew)
	}
	for i, g := range grants {
		if errs[i] == nil || driver.Gone(errs[i]) {
			d.forget(g.Owner)
		}
	}
	return errs[:len(grants)]
}

func (d *Driver) releaseFirst(ctx context.Context, grants []driver.Grant) []error {
	first, err := d.firstNow()
	errs := make([]error, 0, len(grants))
	if err == nil {
		err = errTooFew
		d.count(grants[0].Request, func() (err error) {
			errs = first.Release(ctx, grants)
			for _, err = range errs {
				if isAnswer(err) {
					return nil
				}
			}
			return err
		})
	}
	for len(errs) < len(grants) {
		errs = append(errs, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, g := range grants {
		asked, ok := d.asking[g.Owner]
		switch {
		case !ok:
		case errs[i] == nil || driver.Gone(errs[i]):
			delete(d.asking, g.Owner)
		default:
			// Package holdfast repeats this until the TTL is over. The silence may last longer.
			d.oweLocked(g.Owner, asked)
		}
	}
	return errs[:len(grants)]
}

// Downgrade implements driver.Downgrader.
func (d *Driver) Downgrade(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	if l := d.lease(g.Owner); l != nil {
		down, err := driver.Forward{Driver: d.second}.Downgrade(ctx, d.inner(g, l))
		if err != nil {
			return driver.Grant{}, err
		}
		d.hold(l, down)
		return d.outer(down), nil
	}
	var down driver.Grant
	err := d.ask(g.Request, func(f driver.Forward) (err error) {
		down, err = f.Downgrade(ctx, g)
		return err
	})
	return down, err
}

// Annotate implements driver.Annotator.
func (d *Driver) Annotate(ctx context.Context, g driver.Grant) error {
	if l := d.lease(g.Owner); l != nil {
		return driver.Forward{Driver: d.second}.Annotate(ctx, d.inner(g, l))
	}
	return d.ask(g.Request, func(f driver.Forward) error { return f.Annotate(ctx, g) })
}

// ask asks the first store about a hold that it has granted, whatever the breaker's state.
func (d *Driver) ask(r driver.Request, f func(driver.Forward) error) error {
	first, err := d.firstNow()
	if err != nil {
		return err
	}
	return d.count(r, func() error { return f(driver.Forward{Driver: first}) })
}

// Shard implements driver.Sharder. The two stores are shards, with the shards that they have
// themselves.
func (d *Driver) Shard(r driver.Request) string {
	if d.second == nil {
		return driver.Forward{Driver: d.first}.Shard(r)
	}
	if d.lease(r.Owner) != nil {
		return "second/" + driver.Forward{Driver: d.second}.Shard(r)
	}
	first, err := d.firstNow()
	if err != nil {
		return "first/"
	}
	return "first/" + driver.Forward{Driver: first}.Shard(r)
}
