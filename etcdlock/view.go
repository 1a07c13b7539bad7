package etcdlock

import (
	"context"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/driver"
)

// view is what was before a place at some revision of the store. Later it can
// only be less: whoever comes later is behind.
type view struct {
	rev     int64
	entries []entry // in the order of their creation; for an exclusive request the last one only
	more    bool    // there were others before these
}

func (v *view) clone() view { return view{v.rev, slices.Clone(v.entries), v.more} }

// free reports whether nothing is in the way.
func (v *view) free(req *driver.Request) bool { return !v.more && admits(v.entries, useOf(req)) }

// blind reports whether what was known to be in the way is gone, and more was
// there.
func (v *view) blind() bool { return v.more && len(v.entries) == 0 }

// blocker returns the key of the last entry that the request cannot stand beside.
func (v *view) blocker(req *driver.Request) string {
	for _, e := range slices.Backward(v.entries) {
		if !admits([]entry{e}, useOf(req)) {
			return e.key
		}
	}
	if len(v.entries) > 0 {
		return v.entries[0].key // of a semaphore: all of them together
	}
	return ""
}

// getBefore reads what a view is made of: the entries created before a revision.
// An exclusive request waits for all of them, so the last two are enough.
func (l *layout) getBefore(req *driver.Request, created int64) clientv3.Op {
	opts := []clientv3.OpOption{clientv3.WithPrefix()}
	if created != 0 {
		opts = append(opts, clientv3.WithMaxCreateRev(created-1))
	}
	if req.Mode != driver.Exclusive {
		opts = append(opts, clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
		return clientv3.OpGet(l.dir(req.Name), opts...)
	}
	opts = append(opts, clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend))
	if !l.stock { // there keys of longer names may be among them
		limit := int64(2)
		if created == 0 {
			limit = 3 // the own one too
		}
		opts = append(opts, clientv3.WithLimit(limit))
	}
	return clientv3.OpGet(l.dir(req.Name), opts...)
}

// before makes a view of what getBefore has read, for the entry of that key.
func (l *layout) before(req *driver.Request, key string, rev int64, r *etcdserverpb.RangeResponse) view {
	entries := without(parseEntries(l.dir(req.Name), r.Kvs), key)
	if req.Mode == driver.Exclusive && len(entries) > 0 {
		return view{rev: rev, entries: entries[:1], more: len(entries) > 1}
	}
	return view{rev: rev, entries: entries}
}

// look reads what is before a place, and returns ErrHeld if the place is gone. It
// is a linearizable read, so it sees what happened before a watch began.
func (c *client) look(ctx context.Context, r *record, req *driver.Request) (*view, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	key := c.layout.key(r.name, r.owner)
	resp, err := c.kv.Txn(ctx).Then(
		clientv3.OpGet(key, clientv3.WithKeysOnly()),
		c.layout.getBefore(req, int64(r.token)),
	).Commit()
	if err != nil {
		return nil, err
	}
	own := resp.Responses[0].GetResponseRange().Kvs
	if len(own) == 0 || own[0].CreateRevision != int64(r.token) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.forget(r)
		return nil, driver.ErrHeld
	}
	v := c.layout.before(req, key, resp.Header.Revision, resp.Responses[1].GetResponseRange())
	return &v, nil
}
