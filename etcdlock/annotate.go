package etcdlock

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/driver"
)

// Annotate implements driver.Annotator. The same key is put again, so its place in
// the order and its token stay; and only if it is as it was read, so that a
// downgrade, or a release that closes the name, is not undone.
func (c *client) Annotate(ctx context.Context, g driver.Grant) error {
	if err := c.alive(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	r := c.record(g.Name, g.Owner)
	if r != nil && (r.state != held || g.Token != 0 && r.token != g.Token || r.lapsed(c.clock.Now(), g.LockDelay)) {
		r = nil
	}
	c.mu.Unlock()
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	for r != nil {
		key := c.key(r)
		resp, err := c.kv.Get(ctx, key)
		if err != nil {
			return err
		}
		if len(resp.Kvs) == 0 || resp.Kvs[0].CreateRevision != int64(r.token) {
			break
		}
		v, ok := parseValue(resp.Kvs[0].Value)
		if !ok { // plain: the note says everything
			v = newValue(&g.Request, c.id, c.asked(r))
		}
		if v.Closed {
			break
		}
		v.Note = g.Note
		done, err := c.kv.Txn(ctx).If(
			clientv3.Compare(clientv3.ModRevision(key), "=", resp.Kvs[0].ModRevision),
		).Then(clientv3.OpPut(key, c.layout.text(v), clientv3.WithIgnoreLease())).Commit()
		if err != nil || done.Succeeded {
			return err
		}
	}
	var out driver.Renewal
	c.why(ctx, []renewing{{r, &out, &g}})
	return out.Err
}
