package etcdlock

import (
	"context"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast"
)

// TestCompareEndsWithItsLease: A and B are goroutines of one client. B holds after A, and A's transaction under
// Compare arrives then. Nothing is written, and nothing is under a condition that is made then (P1).
func TestCompareEndsWithItsLease(t *testing.T) {
	server := shared(t)
	etcd := dialClient(t, server.Addrs())
	defer etcd.Close()
	locks, err := holdfast.New(dial(t, server.Addrs(), nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	l := locks.Mutex("stock", nil)
	write := func(who string, under clientv3.Cmp) bool {
		t.Helper()
		resp, err := etcd.Txn(t.Context()).If(under).Then(clientv3.OpPut("stock/42", who)).Commit()
		if err != nil {
			t.Fatal(err)
		}
		return resp.Succeeded
	}
	for range 50 { // in each a cohort may come about, or not
		first, err := l.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan *holdfast.Lease, 2)
		for range cap(got) {
			go func() {
				lease, err := l.Acquire(context.Background())
				if err != nil {
					t.Error(err)
				}
				got <- lease
			}()
		}
		for { // until one of them has a place in the queue
			info, err := locks.Inspect(t.Context(), "stock")
			if err != nil {
				t.Fatal(err)
			}
			if len(info.Waiters) > 0 {
				break
			}
		}
		first.Release()
		a := <-got
		under := Compare(a)
		if !write("A", under) && a.Err() == nil {
			t.Error("A holds, and its transaction changed nothing")
		}
		a.Release()
		b := <-got
		if (write("A, late", under) || write("A, late", Compare(a))) && b.Err() == nil {
			t.Errorf("P1: A (token %d) has released, B (token %d) holds, and A's transaction was carried out", a.Token(), b.Token())
		}
		if !write("B", Compare(b)) && b.Err() == nil {
			t.Error("B holds, and its transaction changed nothing")
		}
		b.Release()
		if t.Failed() {
			return
		}
	}
}
