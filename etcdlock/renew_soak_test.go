//go:build soak

package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/busytest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestBusy: a busy client keeps its leases when replies are late (P2).
func TestBusy(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	proxy := chaos.StartProxy(t, server.Addrs())
	delay := func(by time.Duration) { proxy.Delay(chaos.ToClient, by) }
	busytest.Run(t, delay, func() *holdfast.Client {
		locks, err := holdfast.Open(t.Context(), "etcd://"+proxy.Addr)
		must(t, err)
		return locks
	})
}

// TestFull: beyond its quota etcd takes no puts. Holds are renewed and released
// all the same, nothing hangs, and it goes on when there is room.
func TestFull(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick, Quota: 1 << 20})
	c := dial(t, server.Addrs(), nil)
	held, goes := take(t, c, request("held")), take(t, c, request("goes"))
	var err error
	for i := 0; err == nil; i++ {
		_, err = c.main.etcd.Put(t.Context(), fmt.Sprint("fill", i), strings.Repeat("x", 64<<10))
	}
	if _, err := c.Try(t.Context(), request("other")); err == nil || errors.Is(err, driver.ErrHeld) || errors.Is(err, driver.ErrUncertain) {
		t.Errorf("P6: a full store answered %v", err)
	}
	if r := c.Renew(t.Context(), []driver.Grant{held})[0]; r.Err != nil {
		t.Errorf("P2: a full store did not renew: %v", r.Err)
	}
	passed := held
	passed.Token, passed.HandedOver = held.Token+1, true
	if r := c.Renew(t.Context(), []driver.Grant{passed})[0]; r.Err != nil {
		t.Errorf("P2: a full store did not renew a hold that was handed over: %v", r.Err)
	}
	if err := c.Release(t.Context(), []driver.Grant{goes})[0]; err != nil {
		t.Errorf("P4: a full store did not release: %v", err)
	}
	again := dial(t, server.Addrs(), nil) // an operator wants to look
	if info, err := again.Inspect(t.Context(), "held"); err != nil || len(info.Holders) != 1 {
		t.Errorf("P9: a full store shows %+v, %v", info, err)
	}
	r, err := c.main.etcd.Delete(t.Context(), "fill", clientv3.WithPrefix())
	must(t, err)
	if _, err := c.main.etcd.Compact(t.Context(), r.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.main.etcd.Defragment(t.Context(), server.Members[0].Addr); err != nil {
		t.Fatal(err)
	}
	if _, err := c.main.etcd.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	take(t, c, request("other"))
}

// TestLeaseEnded: that the lease of a hold has ended is told, and its key's number is not used again (P2, P1).
func TestLeaseEnded(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	c := dial(t, server.Addrs(), nil)
	g := take(t, c, request("ended"))
	r := g.Handle.(*record)
	if _, err := c.main.etcd.Revoke(t.Context(), r.session.Load().id); err != nil {
		t.Fatal(err)
	}
	if _, err := r.session.Load().refresh(t.Context(), c.clock.Now()); !errors.Is(err, errOver) {
		t.Errorf("the lease is kept alive: %v", err)
	}
	if loss := <-c.losses; len(loss.Owners) != 1 || loss.Owners[0] != g.Owner {
		t.Errorf("P2: of the end of a lease was told %+v", loss)
	}
	if next := take(t, c, request("ended")).Handle.(*record); c.key(next) == c.key(r) {
		t.Error("P1: the key of a hold that has ended is used again")
	}
}

// TestLateMove: a request that puts a hold's key on the lease of its minimum hold
// arrives when a later one has put it on another. It must not take the key back (P1).
func TestLateMove(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	for _, arrives := range []string{"before the next", "after the next"} {
		t.Run(arrives, func(t *testing.T) {
			c := dial(t, server.Addrs(), nil)
			req := driver.Request{Name: arrives, Owner: arrives, TTL: 10 * time.Second, MinHold: time.Hour}
			before := take(t, c, request(req.Name))
			line(t, c, req)
			release(t, c, before)
			arrive, restore := delay(t, c, func(req *etcdserverpb.TxnRequest) bool { // puts a key from one lease on another
				return slices.ContainsFunc(req.Compare, func(c *etcdserverpb.Compare) bool { return c.Target == etcdserverpb.Compare_LEASE })
			})
			if g, err := c.Wait(t.Context(), req); err == nil {
				if r := c.Renew(t.Context(), []driver.Grant{g})[0]; r.Err == nil {
					t.Fatal("nothing was held up")
				}
			}
			restore()
			if arrives == "before the next" {
				arrive()
			}
			g := driver.Grant{Request: req}
			c.mu.Lock()
			g.Token = c.layout.Token(c.recordLocked(req.Name, req.Owner).created)
			c.mu.Unlock()
			if arrives == "after the next" {
				g.MinHold = 0 // as if it were over: the next renewal puts the key on another lease
			}
			if r := c.Renew(t.Context(), []driver.Grant{g})[0]; r.Err != nil {
				t.Fatal(r.Err)
			}
			own := leaseOf(t, c, req.Name)
			if arrives == "after the next" {
				arrive()
			}
			if now := leaseOf(t, c, req.Name); now != own || int64(c.recordLocked(req.Name, req.Owner).session.Load().id) != own {
				t.Errorf("P1: the key is on lease %x, not on %x, of which the client knows", now, own)
			}
		})
	}
}

// TestLateRecord: a renewal that puts a token on record arrives when the hold has been
// downgraded. It must not make a writer of the reader again (P1).
func TestLateRecord(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	c := dial(t, server.Addrs(), nil)
	req := request("late")
	req.Tokens = 10
	g := take(t, c, req)
	passed := g
	passed.Token, passed.HandedOver = g.Token+3, true
	arrive, restore := delay(t, c, func(req *etcdserverpb.TxnRequest) bool {
		return len(req.Success) == 1 && req.Success[0].GetRequestPut() != nil
	})
	if r := c.Renew(t.Context(), []driver.Grant{passed})[0]; !errors.Is(r.Err, context.DeadlineExceeded) {
		t.Fatalf("nothing was held up: %v", r.Err)
	}
	restore()
	if _, err := c.Downgrade(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	if resp, err := arrive(); err != nil || resp.Succeeded {
		t.Errorf("P1: a change that is late took effect: %v", err)
	}
	if info, err := c.Inspect(t.Context(), g.Name); err != nil || len(info.Holders) != 1 || info.Holders[0].Mode != driver.Shared {
		t.Errorf("P1: the reader is shown as %+v, %v", info, err)
	}
}

// TestTakenBackLate: a client takes a place back that is of no use, gets no answer, and its owner
// asks again. The place must not become a hold: what takes it back may arrive later, and would end that (P1).
func TestTakenBackLate(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	c := dial(t, server.Addrs(), nil)
	slot := request("n")
	slot.Mode, slot.Slots, slot.Permits = driver.Slot, 2, 1
	semaphore := take(t, c, slot)
	arrive, restore := delay(t, c, func(req *etcdserverpb.TxnRequest) bool {
		return len(req.Success) == 1 && req.Success[0].GetRequestDeleteRange() != nil
	})
	req := request("n")
	if _, err := c.Enqueue(t.Context(), req); !errors.Is(err, driver.ErrUncertain) {
		t.Fatalf("Enqueue of another kind, without an answer to what takes it back: %v", err)
	}
	restore()
	release(t, c, semaphore)
	g, err := c.Enqueue(t.Context(), req)
	if _, err := arrive(); err != nil {
		t.Fatal(err)
	}
	if driver.Gone(err) { // so package holdfast withdraws the request, and asks under another owner
		if err := c.Release(t.Context(), []driver.Grant{{Request: req}})[0]; err != nil && !driver.Gone(err) {
			t.Fatal(err)
		}
		g, err = c.Enqueue(t.Context(), request("n"))
	}
	must(t, err)
	if err := c.Renew(t.Context(), []driver.Grant{g})[0].Err; err != nil {
		t.Errorf("P1: a hold was ended by what its client had sent before the grant: %v", err)
	}
}
