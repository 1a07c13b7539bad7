package etcdlock

import (
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// crash ends a client as the death of its process does: nothing is kept alive and
// nothing deleted any more.
func crash(t *testing.T, c *client) {
	t.Helper()
	c.die()
	c.alarm.Close()
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

// leaseOf returns the lease that the one key of a name is on.
func leaseOf(t *testing.T, c *client, name string) int64 {
	t.Helper()
	resp, err := c.kv.Get(t.Context(), c.layout.dir(name), clientv3.WithPrefix())
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatalf("the name has the keys %v: %v", resp, err)
	}
	return resp.Kvs[0].Lease
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
