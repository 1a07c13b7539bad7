package table

import (
	"cmp"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/driver"
)

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

// mostInUse is how many keys a request for a place reads in the order of their names, which
// is little work for etcd. Of a larger crowd the waiter finds out later what is before it, by
// a read that holds nobody else up.
const mostInUse = driver.FarBehind

// GetInUse reads what uses a name before a place is put there. To an exclusive request values
// tell only of what kind the lock is and, if there are few entries, who holds it; so few are
// read. In the layout Stock keys of longer names are among them, so all are read.
func (l *Layout) GetInUse(req *driver.Request) []clientv3.Op {
	dir := l.Dir(req.Name)
	switch {
	case req.Mode != driver.Exclusive:
		return []clientv3.Op{clientv3.OpGet(dir, clientv3.WithPrefix())}
	case l.Stock:
		return []clientv3.Op{
			clientv3.OpGet(dir, clientv3.WithPrefix(), clientv3.WithKeysOnly()),
			clientv3.OpGet(dir, clientv3.WithFirstCreate()...),
		}
	}
	return []clientv3.Op{
		clientv3.OpGet(dir, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(mostInUse)),
		clientv3.OpGet(dir, clientv3.WithPrefix(), clientv3.WithLimit(l.Fewest(req))),
	}
}

// Know takes in entries of which the values were read as well.
func (in *InUse) Know(some []Entry) {
	for _, e := range some {
		for i := range in.Entries {
			if in.Entries[i].Key == e.Key {
				in.Entries[i] = e
			}
		}
	}
}

// ReadInUse makes sense of what was read of a name.
func (l *Layout) ReadInUse(dir string, r *etcdserverpb.RangeResponse) InUse {
	in := InUse{Entries: l.ParseEntries(dir, r.Kvs), More: r.More, Count: int(r.Count)}
	slices.SortFunc(in.Entries, func(a, b Entry) int { return cmp.Compare(a.Created, b.Created) })
	for _, kv := range r.Kvs {
		in.Newest = max(in.Newest, kv.CreateRevision)
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
	case Admits(in.Entries, UseOf(req)):
		return nil
	case in.More:
		return &driver.HeldError{Name: req.Name, Queued: in.Count - 1} // the holder is not known
	}
	return l.HeldError(req, in.Entries)
}

// Refusal says why there is no hold beside the entries.
func (l *Layout) Refusal(req *driver.Request, others []Entry) error {
	if err := l.Mismatch(req, others); err != nil {
		return err
	}
	return l.HeldError(req, others)
}

// HeldError returns ErrHeld with what is known of the first entry in the way.
func (l *Layout) HeldError(req *driver.Request, others []Entry) *driver.HeldError {
	e := &driver.HeldError{Name: req.Name}
	if len(others) > 0 {
		e.Note, e.Token = others[0].Value.Note, l.TokenOf(&others[0])
	}
	return e
}
