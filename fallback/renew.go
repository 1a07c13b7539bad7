package fallback

import (
	"context"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/wrap"
)

// split calls f for each grant that the second store has, as that store knows it. It returns the other grants,
// and where they were.
func (d *Driver) split(grants []driver.Grant, f func(i int, g driver.Grant)) (first []driver.Grant, at []int) {
	for i, g := range grants {
		d.mu.Lock()
		known, ok := d.holds[g.Owner]
		d.mu.Unlock()
		if !ok {
			first, at = append(first, g), append(at, i)
			continue
		}
		g.Token, g.Block, g.Handle, g.Degraded = known.Token, known.Block, known.Handle, false
		f(i, g)
	}
	return first, at
}

// Renew implements driver.Driver. Each grant is renewed in the store that has it, whatever the breaker's
// state, and so is each released.
func (d *Driver) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	out := make([]driver.Renewal, len(grants))
	first, at := d.split(grants, func(i int, g driver.Grant) {
		out[i] = d.second.Renew(ctx, []driver.Grant{g})[0]
		d.mu.Lock()
		defer d.mu.Unlock()
		if _, ok := d.holds[g.Owner]; ok && out[i].Err == nil {
			g.Since, g.Valid = out[i].Since, out[i].Valid
			d.holds[g.Owner] = g
		}
	})
	if len(first) == 0 {
		return out
	}
	var renewals []driver.Renewal
	errs := d.ask(first, func(store wrap.Forward) (errs []error) {
		renewals = store.Renew(ctx, first)
		for _, r := range renewals {
			errs = append(errs, r.Err)
		}
		return errs
	})
	for i, err := range errs {
		if out[at[i]].Err = err; err == nil {
			out[at[i]] = renewals[i]
		}
	}
	return out
}

// Release implements driver.Driver.
func (d *Driver) Release(ctx context.Context, grants []driver.Grant) []error {
	out := make([]error, len(grants))
	first, at := d.split(grants, func(i int, g driver.Grant) {
		if out[i] = d.second.Release(ctx, []driver.Grant{g})[0]; out[i] == nil || driver.Gone(out[i]) {
			d.mu.Lock()
			defer d.mu.Unlock()
			delete(d.holds, g.Owner)
		}
	})
	if len(first) > 0 {
		for i, err := range d.ask(first, func(store wrap.Forward) []error { return store.Release(ctx, first) }) {
			out[at[i]] = err
		}
	}
	return out
}

// Shard implements driver.Sharder. The two stores are shards, with the shards that they have
// themselves, so that a silent store delays no renewals in the other.
func (d *Driver) Shard(r driver.Request) string {
	if d.inSecond(r.Owner) {
		return "second/" + wrap.Forward{Driver: d.second}.Shard(r)
	}
	return "first/" + wrap.Forward{Driver: d.firstNow()}.Shard(r)
}
