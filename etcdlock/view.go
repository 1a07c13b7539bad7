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
	entries []entry // in the order of their creation
	more    bool    // there were others before these
}

// free reports whether nothing is in the way.
func (v *view) free(req *driver.Request) bool { return !v.more && admits(v.entries, useOf(req)) }

// nearby is how many entries an exclusive request looks at. Who has more before it
// need not know them all: it watches the last one only.
const nearby = 3

// getBefore reads what a view is made of: the entries created before a revision,
// or all if that is 0, the own one among them.
func (l *layout) getBefore(req *driver.Request, created int64) clientv3.Op {
	opts := []clientv3.OpOption{clientv3.WithPrefix()}
	if created != 0 {
		opts = append(opts, clientv3.WithMaxCreateRev(created-1))
	}
	if req.Mode != driver.Exclusive {
		opts = append(opts, clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
		return clientv3.OpGet(l.dir(req.Name), opts...)
	}
	opts = append(opts, clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend), clientv3.WithKeysOnly())
	if !l.stock { // there keys of longer names may be among them
		opts = append(opts, clientv3.WithLimit(nearby+2)) // the own one, and one to see that there are more
	}
	return clientv3.OpGet(l.dir(req.Name), opts...)
}

// before makes a view of what getBefore has read, for the entry of that key.
func (l *layout) before(req *driver.Request, key string, rev int64, r *etcdserverpb.RangeResponse) view {
	v := view{rev: rev, entries: without(parseEntries(l.dir(req.Name), r.Kvs), key)}
	if req.Mode != driver.Exclusive {
		return v
	}
	if v.more = len(v.entries) > nearby; v.more {
		v.entries = v.entries[:nearby]
	}
	slices.Reverse(v.entries)
	return v
}

// look reads what is before a place, and returns ErrHeld if the place is gone. It
// is a linearizable read, so it sees what happened before a watch began.
func (c *client) look(ctx context.Context, r *record, req *driver.Request) (*view, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	key := c.key(r)
	resp, err := c.kv.Txn(ctx).Then(
		clientv3.OpGet(key, clientv3.WithKeysOnly()),
		c.layout.getBefore(req, int64(r.token)),
	).Commit()
	if err != nil {
		return nil, err
	}
	own := resp.Responses[0].GetResponseRange().Kvs
	if len(own) == 0 || own[0].CreateRevision != int64(r.token) {
		c.drop(r)
		return nil, driver.ErrHeld
	}
	v := c.layout.before(req, key, resp.Header.Revision, resp.Responses[1].GetResponseRange())
	return &v, nil
}
