//go:build soak

package etcdlock

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// crash ends a client as the death of its process does: nothing is kept alive and
// nothing deleted any more.
func crash(t *testing.T, c *client) {
	t.Helper()
	c.die()
	c.timer.Close()
	if err := c.etcd.Close(); err != nil {
		t.Error(err)
	}
}

// TestMinHoldOfTheDead: the name of a holder that crashes opens when its minimum hold
// is over, not before, and not a minimum hold later (P5): whether it came to it at once
// or by the queue, and however often it was renewed.
func TestMinHoldOfTheDead(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	request := driver.Request{Name: "cron", TTL: time.Second, MinHold: 4 * time.Second}
	for what, hold := range map[string]func(c *client, req driver.Request) driver.Grant{
		"taken": func(c *client, req driver.Request) driver.Grant { return take(t, c, req) },
		"renewed": func(c *client, req driver.Request) driver.Grant {
			g := take(t, c, req)
			for range 3 {
				if r := c.Renew(t.Context(), []driver.Grant{g})[0]; r.Err != nil {
					t.Fatal(r.Err)
				}
			}
			return g
		},
		"passed on": func(c *client, req driver.Request) driver.Grant {
			first := plainRequest(req.Name, "the first")
			before := take(t, c, first)
			line(t, c, req)
			if err := c.Release(t.Context(), []driver.Grant{before})[0]; err != nil {
				t.Fatal(err)
			}
			g, err := c.Wait(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			return g
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			req := request
			req.Name, req.Owner = what, "owner of "+what
			dead, next := dial(t, server.Addrs(), nil), dial(t, server.Addrs(), nil)
			defer next.Close()
			began := time.Now()
			hold(dead, req)
			crash(t, dead)
			lease, err := next.etcd.TimeToLive(t.Context(), clientv3.LeaseID(leaseOf(t, next, req.Name)))
			if err != nil || lease.GrantedTTL > int64(req.MinHold/time.Second)+1 {
				t.Errorf("P5: the name stays closed for %d s: %v", lease.GrantedTTL, err)
			}
			for {
				_, err := next.Try(t.Context(), plainRequest(req.Name, "the next"))
				if err == nil {
					break
				}
				if !errors.Is(err, driver.ErrHeld) {
					t.Fatal(err)
				}
				time.Sleep(20 * time.Millisecond) // then look again
			}
			if open := time.Since(began); open < req.MinHold {
				t.Errorf("P5: the name of a holder that has died opened %v after it was asked for, its minimum hold is %v", open, req.MinHold)
			}
		})
	}
}

// TestMinHoldThenTTL: when less is left of a minimum hold than of the TTL the hold goes
// on with its TTL, and a hold that is released or withdrawn leaves no lease behind.
func TestMinHoldThenTTL(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	c := dial(t, server.Addrs(), nil)
	defer c.Close()
	req := driver.Request{Name: "cron", Owner: "a", TTL: 2 * time.Second, MinHold: 3 * time.Second}
	g := take(t, c, req)
	own := leaseOf(t, c, req.Name)
	for leaseOf(t, c, req.Name) == own {
		if r := c.Renew(t.Context(), []driver.Grant{g})[0]; r.Err != nil {
			t.Fatal(r.Err)
		}
		time.Sleep(20 * time.Millisecond) // until it is due
	}
	if s := c.sessions[2]; s == nil || int64(s.lease()) != leaseOf(t, c, req.Name) {
		t.Error("the hold is not on the lease of its TTL")
	}
	if err := c.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
		t.Error(err)
	}
	req.Name, req.Owner, req.MinHold = "undone", "b", time.Hour
	g = take(t, c, req)
	own = leaseOf(t, c, req.Name)
	g.MinHold = 0 // as when an acquire is undone
	if err := c.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
		t.Error(err)
	}
	for {
		left, err := c.etcd.TimeToLive(t.Context(), clientv3.LeaseID(own))
		if err != nil {
			t.Fatal(err)
		}
		if left.TTL < 0 {
			return
		}
	}
}

// heldUp is a way to etcd on which the first transaction of a kind is held up until it is let go,
// though its caller gives up.
type heldUp struct {
	etcdserverpb.KVClient
	kind func(*etcdserverpb.TxnRequest) bool
	txn  *etcdserverpb.TxnRequest
}

func (h *heldUp) Txn(ctx context.Context, req *etcdserverpb.TxnRequest, opts ...grpc.CallOption) (*etcdserverpb.TxnResponse, error) {
	if h.txn != nil || !h.kind(req) {
		return h.KVClient.Txn(ctx, req, opts...)
	}
	h.txn = req
	return nil, context.DeadlineExceeded
}

// arrive lets it go.
func (h *heldUp) arrive(t *testing.T) *etcdserverpb.TxnResponse {
	t.Helper()
	if h.txn == nil {
		t.Fatal("nothing was held up")
	}
	resp, err := h.KVClient.Txn(t.Context(), h.txn)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// moves reports whether a transaction puts a key from one lease on another.
func moves(req *etcdserverpb.TxnRequest) bool {
	return slices.ContainsFunc(req.Compare, func(c *etcdserverpb.Compare) bool {
		return c.Target == etcdserverpb.Compare_LEASE
	})
}

// TestLateMove: a request that puts a hold's key on the lease of its minimum hold
// arrives when a later one has put it on another. It must not take the key back (P1).
func TestLateMove(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	for _, arrives := range []string{"before the next", "after the next"} {
		t.Run(arrives, func(t *testing.T) {
			c := dial(t, server.Addrs(), nil)
			defer c.Close()
			req := driver.Request{Name: arrives, Owner: arrives, TTL: 10 * time.Second, MinHold: time.Hour}
			before := take(t, c, plainRequest(req.Name, "the first of "+arrives))
			line(t, c, req)
			if err := c.Release(t.Context(), []driver.Grant{before})[0]; err != nil {
				t.Fatal(err)
			}
			late := &heldUp{KVClient: c.direct, kind: moves}
			c.direct = late
			if g, err := c.Wait(t.Context(), req); err == nil {
				if r := c.Renew(t.Context(), []driver.Grant{g})[0]; r.Err == nil {
					t.Fatal("nothing was held up")
				}
			}
			c.direct = late.KVClient
			if arrives == "before the next" {
				late.arrive(t)
			}
			g := driver.Grant{Request: req}
			c.mu.Lock()
			g.Token = c.layout.Token(c.record(req.Name, req.Owner).created)
			c.mu.Unlock()
			if arrives == "after the next" {
				g.MinHold = 0 // as if it were over: the next renewal puts the key on another lease
			}
			if r := c.Renew(t.Context(), []driver.Grant{g})[0]; r.Err != nil {
				t.Fatal(r.Err)
			}
			own := leaseOf(t, c, req.Name)
			if arrives == "after the next" {
				late.arrive(t)
			}
			if now := leaseOf(t, c, req.Name); now != own || int64(c.record(req.Name, req.Owner).session.Load().lease()) != own {
				t.Errorf("P1: the key is on lease %x, not on %x, of which the client knows", now, own)
			}
		})
	}
}

// TestMinHoldUndone: a hold whose move to the lease of its minimum hold is not answered is
// withdrawn. Its lease, which lasts for so long, goes with it (P9).
func TestMinHoldUndone(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	c := dial(t, server.Addrs(), nil)
	defer c.Close()
	req := driver.Request{Name: "n", Owner: "a", TTL: 10 * time.Second, MinHold: time.Hour}
	late := &heldUp{KVClient: c.direct, kind: moves}
	c.direct = late
	g, err := c.Try(t.Context(), req)
	if !errors.Is(err, driver.ErrUncertain) {
		t.Fatalf("a Try that is not answered returned %v", err)
	}
	c.direct = late.KVClient
	if err := c.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for long := true; long; {
		all, err := c.etcd.Leases(ctx)
		if err != nil {
			t.Fatalf("P9: a lease of the minimum hold stays: %v", err)
		}
		long = false
		for _, lease := range all.Leases {
			left, err := c.etcd.TimeToLive(ctx, lease.ID)
			if err != nil {
				t.Fatalf("P9: a lease of the minimum hold stays: %v", err)
			}
			long = long || left.GrantedTTL >= int64(req.MinHold/time.Second)
		}
	}
}
