package etcdlock

import (
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast"
)

// Compare returns the guard for data in the same etcd: a condition that is true
// while the lease's hold is in the store. A transaction under it changes nothing
// after the hold has ended, also if its holder does not know that yet:
//
//	etcd.Txn(ctx).If(etcdlock.Compare(lease)).Then(clientv3.OpPut("stock/42", "7")).Commit()
//
// It compares the create revision of the hold's key. A hold that is handed over inside the
// process keeps its key, so one that Compare was asked for is not handed over: see
// holdfast.Lease.Grant (P1). Of a lease that is over, or of another store, it is a condition
// that is never true.
func Compare(lease *holdfast.Lease) clientv3.Cmp {
	g := lease.Grant()
	// Asked after Grant: a lease that is not over by now was not over then.
	if r, ok := g.Handle.(*record); ok && lease.Err() == nil {
		c := r.session.Load().c
		return clientv3.Compare(clientv3.CreateRevision(c.key(r)), "=", c.layout.Created(g.Token))
	}
	return clientv3.Compare(clientv3.Version("\x00"), "<", 0)
}
