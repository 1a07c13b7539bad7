package table

import (
	"cmp"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/driver"
)

// Read reads all keys below a directory, in the order of their names.
func Read(dir string) *etcdserverpb.RangeRequest {
	return &etcdserverpb.RangeRequest{Key: []byte(dir), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(dir))}
}

// InOrder has the keys come in the order of their creation, or in the opposite one.
func InOrder(r *etcdserverpb.RangeRequest, order etcdserverpb.RangeRequest_SortOrder) *etcdserverpb.RangeRequest {
	r.SortTarget, r.SortOrder = etcdserverpb.RangeRequest_CREATE, order
	return r
}

// Op is a read as a part of a transaction.
func Op(r *etcdserverpb.RangeRequest) *etcdserverpb.RequestOp {
	return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestRange{RequestRange: r}}
}

// InUse is what uses a name: all of it, or a few of many.
type InUse struct {
	Entries []Entry // in the order of their creation
	More    bool    // there are others, before these or after them
	Count   int     // of all keys
	Newest  int64   // the highest create revision of what was read, entry or not
}

// Fewest returns how many keys a Try reads to learn that the name is held; 0: all. To an
// exclusive request each entry is in the way, so none of a thousand clients that start together reads of all others.
func (l *Layout) Fewest(req *driver.Request) int64 {
	if l.Stock || req.Mode != driver.Exclusive {
		return 0 // keys of longer names are among them, or all have to be added up
	}
	return 16
}

// mostInUse is how many keys a request for a place reads in the order of their names, which is little work for etcd.
// Of a larger crowd the waiter finds out later what is before it, by a read that holds nobody else up.
const mostInUse = driver.FarBehind

// GetInUse reads what uses a name before a place is put there. To an exclusive request values
// tell only of what kind the lock is and, if there are few entries, who holds it; so few are
// read. In the layout Stock keys of longer names are among them, so all are read.
func (l *Layout) GetInUse(req *driver.Request) []*etcdserverpb.RequestOp {
	keys, values := Read(l.Dir(req.Name)), Read(l.Dir(req.Name))
	if req.Mode != driver.Exclusive {
		return []*etcdserverpb.RequestOp{Op(values)}
	}
	if keys.KeysOnly = true; l.Stock {
		values.Limit = 1
		InOrder(values, etcdserverpb.RangeRequest_ASCEND)
	} else {
		keys.Limit, values.Limit = mostInUse, l.Fewest(req)
	}
	return []*etcdserverpb.RequestOp{Op(keys), Op(values)}
}

// ReadInUse makes sense of what was read of a name: its keys, and perhaps some again with their values.
func (l *Layout) ReadInUse(dir string, read []*etcdserverpb.ResponseOp) InUse {
	r := read[0].GetResponseRange()
	in := InUse{Entries: l.ParseEntries(dir, r.Kvs), More: r.More, Count: int(r.Count)}
	slices.SortFunc(in.Entries, func(a, b Entry) int { return cmp.Compare(a.Created, b.Created) })
	for _, kv := range r.Kvs {
		in.Newest = max(in.Newest, kv.CreateRevision)
	}
	for _, some := range read[1:] {
		for _, e := range l.ParseEntries(dir, some.GetResponseRange().GetKvs()) {
			if i := slices.IndexFunc(in.Entries, func(known Entry) bool { return known.Key == e.Key }); i >= 0 {
				in.Entries[i] = e
			}
		}
	}
	return in
}

// Before returns what is before a place that was taken at a revision, when these were all
// others. If there are more than were read, the nearest are not known yet.
func (in *InUse) Before(req *driver.Request, rev int64) View {
	v := View{Rev: rev, Entries: slices.Clone(in.Entries), More: in.More, Ahead: len(in.Entries)}
	if in.More {
		v.Entries, v.Ahead = nil, in.Count
	} else if far := len(v.Entries) - Nearby; req.Mode == driver.Exclusive && far > 0 {
		v.Entries, v.More = v.Entries[far:], true
	}
	return v
}

// Refusal returns why there is no hold beside what uses the name, or nil. Of a few of many
// none is known to be the holder.
func (in *InUse) Refusal(l *Layout, req *driver.Request) error {
	// Another version's shared hold or slot would admit this one.
	if err := l.Mismatch(req, in.Entries); err != nil {
		return err
	}
	switch {
	case in.More:
		return &driver.HeldError{Name: req.Name, Queued: in.Count - 1}
	case Admits(in.Entries, UseOf(req)):
		return nil
	}
	return l.HeldError(req, in.Entries)
}

// HeldError returns ErrHeld with what is known of the first entry in the way.
func (l *Layout) HeldError(req *driver.Request, others []Entry) *driver.HeldError {
	e := &driver.HeldError{Name: req.Name}
	if len(others) > 0 {
		e.Note, e.Token = others[0].Value.Note, l.TokenOf(&others[0])
	}
	return e
}

// View is what was before a place at some revision of the store. Later it can only be less: a later entry is behind.
type View struct {
	Rev     int64
	Entries []Entry // in the order of their creation
	More    bool    // there were others before these, or may have been
	Behind  bool    // others were behind it; of many before it that is not known
	Ahead   int     // at most so many were before it; 0: not known
}

// Free reports whether nothing is in the way.
func (v *View) Free(req *driver.Request) bool { return !v.More && Admits(v.Entries, UseOf(req)) }

// Nearby is how many entries an exclusive request looks at. With more before it
// it need not know them all: it watches the last ones only.
const Nearby = 2

// GetBefore reads what a view is made of: the own entry and those created before it.
func (l *Layout) GetBefore(req *driver.Request, created int64) *etcdserverpb.RangeRequest {
	r := Read(l.Dir(req.Name))
	r.MaxCreateRevision = created
	if req.Mode != driver.Exclusive {
		return InOrder(r, etcdserverpb.RangeRequest_ASCEND)
	}
	if r.KeysOnly = true; !l.Stock { // there keys of longer names may be among them
		r.Limit = Nearby + 2 // the own one, and one to see that there are more
	}
	return InOrder(r, etcdserverpb.RangeRequest_DESCEND)
}

// Before makes a view of what GetBefore has read, for the entry of that key. It reports whether
// the entry itself is there.
func (l *Layout) Before(req *driver.Request, key string, created int64, r *etcdserverpb.RangeResponse) (v View, own bool) {
	own = slices.ContainsFunc(r.Kvs, func(kv *mvccpb.KeyValue) bool { return kv.CreateRevision == created && string(kv.Key) == key })
	v = View{Rev: r.Header.Revision, Entries: Without(l.ParseEntries(l.Dir(req.Name), r.Kvs), key)}
	// The count has all keys of the name, those behind the place too.
	v.Behind = !l.Stock && !r.More && r.Count > int64(len(r.Kvs))
	v.Ahead = len(v.Entries)
	if req.Mode != driver.Exclusive {
		return v, own
	}
	if r.More {
		v.Ahead = int(r.Count) - 1
	}
	// What is no entry, and stands in the place of entries, is taken for some.
	if v.More = len(v.Entries) > Nearby || r.More && len(v.Entries) < len(r.Kvs)-1; len(v.Entries) > Nearby {
		v.Entries = v.Entries[:Nearby]
	}
	slices.Reverse(v.Entries)
	return v, own
}
