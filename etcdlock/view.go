package etcdlock

import (
	"context"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
)

// still returns the view of an exclusive request's place, as it was at that revision or
// later, if all that it has in the way is still there; else nil. To etcd that is little
// work however many wait, while a read goes through all keys of the name. Entries before
// the place only go, so nothing has come in between. The member asked answers by itself.
func (c *client) still(ctx context.Context, r *record, req *driver.Request, v table.View, since int64) (*table.View, error) {
	if len(v.Entries) == 0 || req.Mode != driver.Exclusive {
		return nil, nil
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	there := []*etcdserverpb.Compare{table.CompareCreated([]byte(c.key(r)), nil, etcdserverpb.Compare_EQUAL, r.created)}
	for _, e := range v.Entries {
		there = append(there, table.CompareCreated([]byte(e.Key), nil, etcdserverpb.Compare_EQUAL, e.Created))
	}
	txn := &etcdserverpb.TxnRequest{Compare: there}
	// Others may have come since: who is next tells its client whether (driver.Grant.Contended).
	counts := !v.More && !v.Partial && !c.layout.Stock
	if counts {
		txn.Success = []*etcdserverpb.RequestOp{countOp(dirSpan(c.layout.Dir(r.name), false))}
	}
	resp, err := commit(ctx, c.direct, txn)
	if err != nil || !resp.Succeeded || resp.Header.Revision < since {
		return nil, err
	}
	if counts && len(resp.Responses) == 1 {
		v.Behind = resp.Responses[0].GetResponseRange().GetCount() > int64(len(v.Entries)+1)
	}
	v.Rev = max(v.Rev, resp.Header.Revision)
	return &v, nil
}

// readView reads what is before a place, as it was at that revision or later, or as it is
// now if that is 0, and returns ErrHeld if the place is gone. The member asked answers
// by itself if it has come so far: what a majority has agreed on it must not ask
// again. The revision is at least that of the place, or a member that does not
// have it yet would not show it.
func (c *client) readView(ctx context.Context, r *record, req *driver.Request, since int64) (*table.View, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	key, now := c.key(r), since == 0
	var resp clientv3.OpResponse
	var err error
	if !now {
		resp, err = c.kv.Do(ctx, c.layout.GetBefore(req, r.created, clientv3.WithSerializable()))
		now = err == nil && resp.Get().Header.Revision < max(since, r.created)
	}
	if now {
		resp, err = c.kv.Do(ctx, c.layout.GetBefore(req, r.created))
	}
	if err != nil {
		return nil, err
	}
	read := (*etcdserverpb.RangeResponse)(resp.Get())
	if v := c.layout.Before(req, key, 0, read); v.Partial {
		if resp, err = c.kv.Do(ctx, c.layout.GetAllBefore(req, r.created)); err != nil {
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
	v := c.layout.Before(req, key, read.Header.Revision, read)
	return &v, nil
}
