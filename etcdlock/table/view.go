package table

import (
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/driver"
)

// View is what was before a place at some revision of the store. Later it can
// only be less: a later entry is behind.
type View struct {
	Rev     int64
	Entries []Entry // in the order of their creation
	More    bool    // there were others before these, or may have been
	Partial bool    // so many keys that are no entries were read that entries may be missing
	Behind  bool    // others were behind it; of many before it that is not known
	Ahead   int     // at most so many were before it; 0: not known
}

// Free reports whether nothing is in the way.
func (v *View) Free(req *driver.Request) bool { return !v.More && Admits(v.Entries, UseOf(req)) }

// Nearby is how many entries an exclusive request looks at. With more before it it
// need not know them all: it watches the last ones only.
const Nearby = 2

// GetBefore reads what a view is made of: the own entry and those created before it.
func (l *Layout) GetBefore(req *driver.Request, created int64, opts ...clientv3.OpOption) clientv3.Op {
	if !l.Stock { // there keys of longer names may be among them
		opts = append(opts, clientv3.WithLimit(Nearby+2)) // the own one, and one to see that there are more
	}
	return l.GetAllBefore(req, created, opts...)
}

// GetAllBefore is getBefore where much is read that is no entry.
func (l *Layout) GetAllBefore(req *driver.Request, created int64, opts ...clientv3.OpOption) clientv3.Op {
	opts = append(opts, clientv3.WithPrefix(), clientv3.WithMaxCreateRev(created))
	if req.Mode != driver.Exclusive {
		opts = append(opts, clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend), clientv3.WithLimit(0))
		return clientv3.OpGet(l.Dir(req.Name), opts...)
	}
	opts = append(opts, clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend), clientv3.WithKeysOnly())
	return clientv3.OpGet(l.Dir(req.Name), opts...)
}

// Before makes a view of what getBefore has read, for the entry of that key.
func (l *Layout) Before(req *driver.Request, key string, rev int64, r *etcdserverpb.RangeResponse) View {
	entries := l.ParseEntries(l.Dir(req.Name), r.Kvs)
	partial := r.More && len(entries) < len(r.Kvs)
	v := View{Rev: rev, Entries: Without(entries, key), Partial: partial}
	// The count has all keys of the name, those behind the place too.
	v.Behind = !l.Stock && !r.More && r.Count > int64(len(r.Kvs))
	v.Ahead = len(v.Entries)
	if req.Mode != driver.Exclusive {
		return v
	}
	if r.More {
		v.Ahead = int(r.Count) - 1
	}
	if v.More = len(v.Entries) > Nearby; v.More {
		v.Entries = v.Entries[:Nearby]
	}
	v.More = v.More || partial
	slices.Reverse(v.Entries)
	return v
}
