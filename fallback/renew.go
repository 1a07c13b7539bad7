package fallback

import (
	"context"

	"github.com/holdfastlock/holdfast/driver"
)

// send sends each grant to the store that has it, whatever the breaker's state, and returns the outcomes. The
// second store gets its grants as it gave them, one by one.
func (d *Driver) send(grants []driver.Grant, do func(forward, []driver.Grant) []driver.Renewal) []driver.Renewal {
	out := make([]driver.Renewal, len(grants))
	var first []driver.Grant
	var at []int // of those
	for i, g := range grants {
		known, ok := d.inSecond(g.Owner)
		if !ok {
			first, at = append(first, g), append(at, i)
			continue
		}
		g.Token, g.Block, g.Handle, g.Degraded = known.Token, known.Block, known.Handle, false
		out[i] = do(forward{Driver: d.second}, []driver.Grant{g})[0]
	}
	if len(first) > 0 {
		for i, r := range d.ask(first, func(store forward) []driver.Renewal { return do(store, first) }) {
			out[at[i]] = r
		}
	}
	return out
}

// Renew implements driver.Driver.
func (d *Driver) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	return d.send(grants, func(store forward, part []driver.Grant) []driver.Renewal { return store.Renew(ctx, part) })
}

// Release implements driver.Driver.
func (d *Driver) Release(ctx context.Context, grants []driver.Grant) (errs []error) {
	out := d.send(grants, func(store forward, part []driver.Grant) (out []driver.Renewal) {
		for _, err := range store.Release(ctx, part) {
			out = append(out, driver.Renewal{Err: err})
		}
		return out
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, r := range out {
		if r.Err == nil || driver.Gone(r.Err) {
			delete(d.holds, grants[i].Owner)
		}
		errs = append(errs, r.Err)
	}
	return errs
}

// Shard implements driver.Sharder. The two stores are shards, with the shards that they have
// themselves, so that a silent store delays no renewals in the other.
func (d *Driver) Shard(r driver.Request) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.holds[r.Owner]; ok {
		return "second/" + forward{Driver: d.second}.Shard(r)
	}
	return "first/" + forward{Driver: d.first}.Shard(r)
}
