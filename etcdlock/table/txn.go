package table

import (
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/driver"
)

// This file has what is asked of etcd; what its answers say is in entry.go. The transactions are put together by hand: the
// builder of etcd's client library clones each comparison by reflection and copies each operation twice, which is a third
// of what an uncontended pair costs the client beside gRPC.

// Take puts a request's key on a lease if the owner has no tombstone and no key of the name is
// newer than the revision seen, up to which the caller knows all keys. If not, it reads the name's
// keys, at most limit of them; 0: all. Nothing can come between the caller's knowledge and the key.
func (l *Layout) Take(name, owner, key, text string, lease clientv3.LeaseID, seen, limit int64) *etcdserverpb.TxnRequest {
	dir := l.Dir(name)
	from, to := []byte(dir), []byte(clientv3.GetPrefixRangeEnd(dir))
	return &etcdserverpb.TxnRequest{
		Compare: []*etcdserverpb.Compare{
			CompareCreated([]byte(l.Tombstone(owner)), nil, etcdserverpb.Compare_EQUAL, 0),
			CompareCreated(from, to, etcdserverpb.Compare_LESS, seen+1),
		},
		Success: []*etcdserverpb.RequestOp{PutOp([]byte(key), text, lease)},
		Failure: []*etcdserverpb.RequestOp{RangeOp(from, to, limit)},
	}
}

// Place puts a request's key on a lease, unless the owner has a tombstone or the key is there. What is before the place is
// read in the same transaction; else the key is read. See Placed and NotPlaced.
func (l *Layout) Place(req *driver.Request, key, text string, lease clientv3.LeaseID) *etcdserverpb.TxnRequest {
	return &etcdserverpb.TxnRequest{
		Compare: []*etcdserverpb.Compare{
			CompareCreated([]byte(l.Tombstone(req.Owner)), nil, etcdserverpb.Compare_EQUAL, 0),
			CompareCreated([]byte(key), nil, etcdserverpb.Compare_EQUAL, 0),
		},
		Success: append(l.getInUse(req), PutOp([]byte(key), text, lease)),
		Failure: []*etcdserverpb.RequestOp{RangeOp([]byte(key), nil, 0)},
	}
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

// getInUse reads what uses a name before a place is put there. To an exclusive request values
// tell only of what kind the lock is and, if there are few entries, who holds it; so few are
// read. In the layout Stock keys of longer names are among them, so all are read.
func (l *Layout) getInUse(req *driver.Request) []*etcdserverpb.RequestOp {
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

// Still asks whether a place, and all that its view has before it, is there, which is little work for etcd however many
// wait: a read of the place goes through all keys of the name. Entries before it only go, so nothing has come in between.
func (l *Layout) Still(name, key string, created int64, v *View) *etcdserverpb.TxnRequest {
	txn := &etcdserverpb.TxnRequest{}
	for _, e := range append([]Entry{{Key: key, Created: created}}, v.Entries...) {
		txn.Compare = append(txn.Compare, CompareCreated([]byte(e.Key), nil, etcdserverpb.Compare_EQUAL, e.Created))
	}
	if !v.More && !l.Stock { // others may have come since: who is next tells its client whether (driver.Grant.Contended)
		count := Read(l.Dir(name))
		count.CountOnly, count.Serializable = true, true
		txn.Success = []*etcdserverpb.RequestOp{Op(count)}
	}
	return txn
}

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

// Removal is a key that is to be deleted if it is still the one that was created then.
type Removal struct {
	Key     string // "": there is none, only the tombstone is to be put
	Created int64
	// Mod, if it is not 0, is the revision of the last change that the key must still have.
	Mod int64
	// Closed, if it is not "", is the value of the key that closes the name from now on, on no lease: the key stays.
	Closed string
	// Tombstone is what says that no request of its owner may put a key any more. It is put on
	// the lease of tombstones, whether the key was there or not. "": none.
	Tombstone string
}

// Remove deletes keys, each by itself: what has become of one does not matter to the others.
func Remove(removals []Removal, tombstones clientv3.LeaseID) *etcdserverpb.TxnRequest {
	all := &etcdserverpb.TxnRequest{}
	for i := range removals {
		r := &removals[i]
		key, one := []byte(r.Key), &etcdserverpb.TxnRequest{}
		if r.Key != "" {
			one.Compare = []*etcdserverpb.Compare{CompareCreated(key, nil, etcdserverpb.Compare_EQUAL, r.Created)}
			if r.Mod != 0 {
				one.Compare = append(one.Compare, CompareChanged(key, r.Mod))
			}
			one.Success = []*etcdserverpb.RequestOp{DeleteOp(key)}
			if r.Closed != "" {
				one.Success[0] = PutOp(key, r.Closed, 0)
			}
		}
		if r.Tombstone != "" {
			tombstone := PutOp([]byte(r.Tombstone), "", tombstones)
			one.Success, one.Failure = append(one.Success, tombstone), append(one.Failure, tombstone)
		}
		if len(removals) == 1 { // as a rule: no transaction in a transaction
			return one
		}
		all.Success = append(all.Success, TxnOp(one))
	}
	return all
}

// Removed reports whether the n-th of several removals found its key.
func Removed(resp *etcdserverpb.TxnResponse, removals, n int) bool {
	if removals == 1 {
		return resp.Succeeded
	}
	return resp.Responses[n].GetResponseTxn().GetSucceeded()
}

// MaxRemovals is how many keys Remove takes: etcd takes 128 operations in one transaction as it is
// set up by default, and counts the inner and the outer ones.
const MaxRemovals = 100

// Move puts a key that was created then from one lease on another, and else reads it. It says which
// lease the key is to leave. A request that the network held up, and that arrives after a later Move, so changes
// nothing. Otherwise the key would be on a lease that nobody keeps alive, and end before the hold does (P1).
func Move(key string, created int64, from, to clientv3.LeaseID) *etcdserverpb.TxnRequest {
	return &etcdserverpb.TxnRequest{
		Compare: []*etcdserverpb.Compare{
			CompareCreated([]byte(key), nil, etcdserverpb.Compare_EQUAL, created),
			compareLease([]byte(key), from),
		},
		Success: []*etcdserverpb.RequestOp{put(&etcdserverpb.PutRequest{Key: []byte(key), Lease: int64(to), IgnoreValue: true})},
		Failure: []*etcdserverpb.RequestOp{RangeOp([]byte(key), nil, 0)},
	}
}

// Change replaces the value of a key that was changed last at the revision mod, and else reads it.
// The same key is put again, so its place in the order and its tokens stay.
func Change(key string, mod int64, text string) *etcdserverpb.TxnRequest {
	return &etcdserverpb.TxnRequest{
		Compare: []*etcdserverpb.Compare{CompareChanged([]byte(key), mod)},
		Success: []*etcdserverpb.RequestOp{put(&etcdserverpb.PutRequest{Key: []byte(key), Value: []byte(text), IgnoreLease: true})},
		Failure: []*etcdserverpb.RequestOp{RangeOp([]byte(key), nil, 0)},
	}
}

// Break deletes the key of an entry that is as it was when it was read, and puts a marker on a
// lease, from which the holder learns what has happened. marker "": none.
func Break(e *Entry, marker, text string, lease clientv3.LeaseID) *etcdserverpb.TxnRequest {
	txn := &etcdserverpb.TxnRequest{Compare: []*etcdserverpb.Compare{CompareChanged([]byte(e.Key), e.Mod)}}
	if marker != "" { // first: whoever watches then knows why the key goes
		txn.Success = append(txn.Success, PutOp([]byte(marker), text, lease))
	}
	txn.Success = append(txn.Success, DeleteOp([]byte(e.Key)))
	return txn
}

// CompareCreated compares the create revision of a key, or of all keys up to end.
func CompareCreated(key, end []byte, op etcdserverpb.Compare_CompareResult, rev int64) *etcdserverpb.Compare {
	return &etcdserverpb.Compare{
		Result: op, Target: etcdserverpb.Compare_CREATE, Key: key, RangeEnd: end,
		TargetUnion: &etcdserverpb.Compare_CreateRevision{CreateRevision: rev},
	}
}

// compareLease compares the lease that a key is on.
func compareLease(key []byte, id clientv3.LeaseID) *etcdserverpb.Compare {
	return &etcdserverpb.Compare{
		Result: etcdserverpb.Compare_EQUAL, Target: etcdserverpb.Compare_LEASE, Key: key,
		TargetUnion: &etcdserverpb.Compare_Lease{Lease: int64(id)},
	}
}

// CompareChanged compares the revision of a key's last change.
func CompareChanged(key []byte, rev int64) *etcdserverpb.Compare {
	return &etcdserverpb.Compare{
		Result: etcdserverpb.Compare_EQUAL, Target: etcdserverpb.Compare_MOD, Key: key,
		TargetUnion: &etcdserverpb.Compare_ModRevision{ModRevision: rev},
	}
}

// PutOp puts a key on a lease.
func PutOp(key []byte, value string, lease clientv3.LeaseID) *etcdserverpb.RequestOp {
	return put(&etcdserverpb.PutRequest{Key: key, Value: []byte(value), Lease: int64(lease)})
}

func put(req *etcdserverpb.PutRequest) *etcdserverpb.RequestOp {
	return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestPut{RequestPut: req}}
}

// DeleteOp deletes a key.
func DeleteOp(key []byte) *etcdserverpb.RequestOp {
	return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestDeleteRange{
		RequestDeleteRange: &etcdserverpb.DeleteRangeRequest{Key: key},
	}}
}

// TxnOp is a transaction in a transaction.
func TxnOp(req *etcdserverpb.TxnRequest) *etcdserverpb.RequestOp {
	return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestTxn{RequestTxn: req}}
}

// RangeOp reads the keys up to end, or a key; at most so many unless limit is 0.
func RangeOp(key, end []byte, limit int64) *etcdserverpb.RequestOp {
	return Op(&etcdserverpb.RangeRequest{Key: key, RangeEnd: end, Limit: limit})
}

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
