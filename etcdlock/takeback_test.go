//go:build soak

package etcdlock

import (
	"context"
	"errors"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// lateDeletes is a way to etcd on which transactions that delete get no answer, and arrive when the test
// says so.
type lateDeletes struct {
	clientv3.KV
	late []clientv3.Txn
}

func (l *lateDeletes) Txn(ctx context.Context) clientv3.Txn {
	return &lateTxn{Txn: l.KV.Txn(context.WithoutCancel(ctx)), of: l}
}

type lateTxn struct {
	clientv3.Txn
	of      *lateDeletes
	deletes bool
}

func (t *lateTxn) If(cs ...clientv3.Cmp) clientv3.Txn { t.Txn = t.Txn.If(cs...); return t }
func (t *lateTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.deletes = len(ops) == 1 && ops[0].IsDelete()
	t.Txn = t.Txn.Then(ops...)
	return t
}
func (t *lateTxn) Else(ops ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Else(ops...); return t }
func (t *lateTxn) Commit() (*clientv3.TxnResponse, error) {
	if t.deletes {
		t.of.late = append(t.of.late, t.Txn)
		return nil, context.DeadlineExceeded
	}
	return t.Txn.Commit()
}

// TestTakenBackLate: suppose a client takes a place back that is of no use, gets no answer, and its owner
// asks again. The place must not become a hold: what takes it back may arrive later, and would end that (P1).
func TestTakenBackLate(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	c := dial(t, server.Addrs(), nil)
	defer c.Close()
	slot := request("n")
	slot.Mode, slot.Slots, slot.Permits = driver.Slot, 2, 1
	semaphore := take(t, c, slot)
	net := &lateDeletes{KV: c.kv}
	c.kv = net
	req := request("n")
	if _, err := c.Enqueue(t.Context(), req); !errors.Is(err, driver.ErrUncertain) {
		t.Fatalf("Enqueue of another kind, without an answer to what takes it back: %v", err)
	}
	c.kv = net.KV
	if err := c.Release(t.Context(), []driver.Grant{semaphore})[0]; err != nil {
		t.Fatal(err)
	}
	g, err := c.Enqueue(t.Context(), req)
	if len(net.late) != 1 {
		t.Fatalf("%d requests took the place back", len(net.late))
	}
	if _, err := net.late[0].Commit(); err != nil {
		t.Fatal(err)
	}
	if driver.Gone(err) { // so package holdfast withdraws the request, and asks under another owner
		if err := c.Release(t.Context(), []driver.Grant{{Request: req}})[0]; err != nil && !driver.Gone(err) {
			t.Fatal(err)
		}
		g, err = c.Enqueue(t.Context(), request("n"))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Renew(t.Context(), []driver.Grant{g})[0].Err; err != nil {
		t.Errorf("P1: a hold was ended by what its client had sent before the grant: %v", err)
	}
	if err := c.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
		t.Error(err)
	}
}
