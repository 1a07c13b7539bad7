package etcdlock

import (
	"context"
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

// TestAnswerLost: the answer to a Try is lost, and its owner asks again. It gets the hold that it has (P6).
func TestAnswerLost(t *testing.T) {
	server := shared(t)
	c := dial(t, server.Addrs(), nil)
	arrive, restore := delay(t, c, func(*etcdserverpb.TxnRequest) bool { return true })
	req := request("n")
	if _, err := c.Try(t.Context(), req); !errors.Is(err, driver.ErrUncertain) {
		t.Fatalf("a Try without an answer: %v", err)
	}
	restore()
	if _, err := arrive(); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	c.sessions[30].since = c.sessions[30].since.Add(-5 * c.caps.Poll)
	c.mu.Unlock()
	g, err := c.Enqueue(t.Context(), req)
	if err != nil || g.Since.Add(g.Valid) < c.clock.Now().Add(c.caps.Poll/2) {
		t.Fatalf("P6: the owner asks again: %+v, %v", g, err)
	}
	if r := c.Renew(t.Context(), []driver.Grant{g})[0]; r.Err != nil || r.Valid < req.TTL*3/4 {
		t.Errorf("P2: its renewal: %+v", r)
	}
}

// TestCompareOfABrokenHold: the condition is true after a renewal, and not when the hold was broken (P1).
func TestCompareOfABrokenHold(t *testing.T) {
	server := shared(t)
	locks := openLocks(t, "etcd://"+server.Addrs())
	etcd := dialClient(t, server.Addrs())
	defer etcd.Close()
	lease, err := locks.Mutex("orders/42", nil).Acquire(t.Context())
	must(t, err)
	defer lease.Release()
	put := func() bool {
		r, err := etcd.Txn(t.Context()).If(Compare(lease)).Then(clientv3.OpPut("stock", "7")).Commit()
		must(t, err)
		return r.Succeeded
	}
	if err := lease.Renew(t.Context()); err != nil || !put() {
		t.Errorf("P3: after a renewal a holder could not write under its guard (%v)", err)
	}
	must(t, locks.Break(t.Context(), "orders/42", lease.Token()))
	if put() {
		t.Error("P1: a holder whose hold was broken could write under its guard")
	}
}

// TestCompareEndsWithItsLease: A and B are goroutines of one client. B holds after A, and A's transaction under
// Compare arrives then. Nothing is written, and nothing is under a condition that is made then (P1).
func TestCompareEndsWithItsLease(t *testing.T) {
	server := shared(t)
	etcd := dialClient(t, server.Addrs())
	defer etcd.Close()
	locks := openLocks(t, "etcd://"+server.Addrs())
	l := locks.Mutex("stock", nil)
	write := func(who string, under clientv3.Cmp) bool {
		t.Helper()
		resp, err := etcd.Txn(t.Context()).If(under).Then(clientv3.OpPut("stock/42", who)).Commit()
		must(t, err)
		return resp.Succeeded
	}
	for range 50 { // in each a cohort may come about, or not
		first, err := l.Acquire(t.Context())
		must(t, err)
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
			must(t, err)
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
