package etcdlock

import (
	"context"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/driver"
)

// view is what was before a place at some revision of the store. Later it can
// only be less: a later entry is behind.
type view struct {
	rev     int64
	entries []entry // in the order of their creation
	more    bool    // there were others before these, or may have been
	partial bool    // so many keys that are no entries were read that entries may be missing
	behind  bool    // others were behind it; of many before it that is not known
	ahead   int     // at most so many were before it; 0: not known
}

// free reports whether nothing is in the way.
func (v *view) free(req *driver.Request) bool { return !v.more && admits(v.entries, useOf(req)) }

// nearby is how many entries an exclusive request looks at. With more before it it
// need not know them all: it watches the last ones only.
const nearby = 2

// getBefore reads what a view is made of: the own entry and those created before it.
func (l *layout) getBefore(req *driver.Request, created int64, opts ...clientv3.OpOption) clientv3.Op {
	if !l.stock { // there keys of longer names may be among them
		opts = append(opts, clientv3.WithLimit(nearby+2)) // the own one, and one to see that there are more
	}
	return l.getAllBefore(req, created, opts...)
}

// getAllBefore is getBefore where much is read that is no entry.
func (l *layout) getAllBefore(req *driver.Request, created int64, opts ...clientv3.OpOption) clientv3.Op {
	opts = append(opts, clientv3.WithPrefix(), clientv3.WithMaxCreateRev(created))
	if req.Mode != driver.Exclusive {
		opts = append(opts, clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend), clientv3.WithLimit(0))
		return clientv3.OpGet(l.dir(req.Name), opts...)
	}
	opts = append(opts, clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend), clientv3.WithKeysOnly())
	return clientv3.OpGet(l.dir(req.Name), opts...)
}

// before makes a view of what getBefore has read, for the entry of that key.
func (l *layout) before(req *driver.Request, key string, rev int64, r *etcdserverpb.RangeResponse) view {
	entries := l.parseEntries(l.dir(req.Name), r.Kvs)
	partial := r.More && len(entries) < len(r.Kvs)
	v := view{rev: rev, entries: without(entries, key), partial: partial}
	// The count has all keys of the name, those behind the place too.
	v.behind = !l.stock && !r.More && r.Count > int64(len(r.Kvs))
	v.ahead = len(v.entries)
	if req.Mode != driver.Exclusive {
		return v
	}
	if r.More {
		v.ahead = int(r.Count) - 1
	}
	if v.more = len(v.entries) > nearby; v.more {
		v.entries = v.entries[:nearby]
	}
	v.more = v.more || partial
	slices.Reverse(v.entries)
	return v
}

// still returns the view of an exclusive request's place, as it was at that revision or
// later, if all that it has in the way is still there; else nil. To etcd that is little
// work however many wait, while a read goes through all keys of the name. Entries before
// the place only go, so nothing has come in between. The member asked answers by itself.
func (c *client) still(ctx context.Context, r *record, req *driver.Request, v view, since int64) (*view, error) {
	if len(v.entries) == 0 || req.Mode != driver.Exclusive {
		return nil, nil
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	there := []*etcdserverpb.Compare{compareCreated([]byte(c.key(r)), nil, etcdserverpb.Compare_EQUAL, r.created)}
	for _, e := range v.entries {
		there = append(there, compareCreated([]byte(e.key), nil, etcdserverpb.Compare_EQUAL, e.created))
	}
	txn := &etcdserverpb.TxnRequest{Compare: there}
	// Others may have come since: who is next tells its client whether (driver.Grant.Contended).
	counts := !v.more && !v.partial && !c.layout.stock
	if counts {
		txn.Success = []*etcdserverpb.RequestOp{countOp(dirSpan(c.layout.dir(r.name), false))}
	}
	resp, err := commit(ctx, c.direct, txn)
	if err != nil || !resp.Succeeded || resp.Header.Revision < since {
		return nil, err
	}
	if counts && len(resp.Responses) == 1 {
		v.behind = resp.Responses[0].GetResponseRange().GetCount() > int64(len(v.entries)+1)
	}
	v.rev = max(v.rev, resp.Header.Revision)
	return &v, nil
}

// readView reads what is before a place, as it was at that revision or later, or as it is
// now if that is 0, and returns ErrHeld if the place is gone. The member asked answers
// by itself if it has come so far: what a majority has agreed on it must not ask
// again. The revision is at least that of the place, or a member that does not
// have it yet would not show it.
func (c *client) readView(ctx context.Context, r *record, req *driver.Request, since int64) (*view, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	key, now := c.key(r), since == 0
	var resp clientv3.OpResponse
	var err error
	if !now {
		resp, err = c.kv.Do(ctx, c.layout.getBefore(req, r.created, clientv3.WithSerializable()))
		now = err == nil && resp.Get().Header.Revision < max(since, r.created)
	}
	if now {
		resp, err = c.kv.Do(ctx, c.layout.getBefore(req, r.created))
	}
	if err != nil {
		return nil, err
	}
	read := (*etcdserverpb.RangeResponse)(resp.Get())
	if v := c.layout.before(req, key, 0, read); v.partial {
		if resp, err = c.kv.Do(ctx, c.layout.getAllBefore(req, r.created)); err != nil {
			return nil, err
		}
		read = (*etcdserverpb.RangeResponse)(resp.Get())
	}
	own := slices.ContainsFunc(read.Kvs, func(kv *mvccpb.KeyValue) bool {
		return kv.CreateRevision == r.created && string(kv.Key) == key
	})
	if !own {
		c.forget(r)
		return nil, driver.ErrHeld
	}
	v := c.layout.before(req, key, read.Header.Revision, read)
	return &v, nil
}
