package etcdlock

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
)

// Annotate implements driver.Annotator.
func (c *client) Annotate(ctx context.Context, g driver.Grant) error {
	if err := c.alive(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	r := c.record(g.Name, g.Owner)
	if r != nil && (!c.isHoldLocked(r, &g) || r.lapsed(c.clock.Now(), g.LockDelay)) {
		r = nil
	}
	c.mu.Unlock()
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	return c.changed(ctx, r, &g, func(v *table.Value) { v.Note = g.Note })
}

// changed is change, and tells why there is no hold to change.
func (c *client) changed(ctx context.Context, r *record, g *driver.Grant, edit func(*table.Value)) error {
	if r != nil {
		if there, err := c.change(ctx, r, g, edit); there || err != nil {
			return err
		}
	}
	var out driver.Renewal
	c.why(ctx, []renewing{{r, &out, g}})
	return out.Err
}

// change edits the value of a hold's key, and reports whether the hold is there. The same
// key is put again, so its place in the order and its tokens stay. It is put only if it is
// as it was when it was read. Suppose that a change is held up in the network, that the
// hold is downgraded or that its name is closed meanwhile, and that the change arrives
// then: it must undo neither. The first attempt reads nothing: it assumes that the value
// has not been changed yet.
func (c *client) change(ctx context.Context, r *record, g *driver.Grant, edit func(*table.Value)) (there bool, err error) {
	key, mod := c.key(r), r.created
	v := c.layout.NewValue(&g.Request, c.id, c.asked(r))
	for {
		edit(&v)
		resp, err := commit(ctx, c.spareRoute().direct, table.Change(key, mod, c.layout.Text(v)))
		if err != nil || resp.Succeeded {
			return err == nil, err
		}
		kvs := resp.Responses[0].GetResponseRange().Kvs
		if len(kvs) == 0 || kvs[0].CreateRevision != r.created {
			return false, nil
		}
		var ok bool
		if v, ok = table.ParseValue(kvs[0].Value); !ok { // plain: the note says everything
			v = c.layout.NewValue(&g.Request, c.id, c.asked(r))
		}
		if v.Closed {
			return false, nil
		}
		mod = kvs[0].ModRevision
	}
}

// recordHandOver puts the token that a hold was handed over with on record (P3), unless a
// higher one is there. It reports whether the hold is there. A store that is full takes no
// value; the hold is renewed all the same, and operators see the token from before.
func (c *client) recordHandOver(ctx context.Context, r *record, g *driver.Grant) (there bool, err error) {
	handedOver := int(g.Token - c.layout.Token(r.created))
	there, err = c.change(ctx, r, g, func(v *table.Value) { v.HandedOver = max(v.HandedOver, handedOver) })
	if errors.Is(err, rpctypes.ErrNoSpace) {
		return true, nil
	}
	return there, err
}
