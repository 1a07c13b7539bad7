package etcdlock

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/driver"
)

// leaseOf returns the lease that the one key of a name is on.
func leaseOf(t *testing.T, c *client, name string) int64 {
	t.Helper()
	resp, err := c.kv.Get(t.Context(), c.layout.Dir(name), clientv3.WithPrefix())
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatalf("the name has the keys %v: %v", resp, err)
	}
	return resp.Kvs[0].Lease
}

// TestMinHoldIsTrustedWithinItsLease: when a little more is left of a minimum hold than
// of the TTL its lease may end before a whole TTL has passed, so the holder trusts it for
// less (P1).
func TestMinHoldIsTrustedWithinItsLease(t *testing.T) {
	server := shared(t)
	c := dial(t, server.Addrs(), nil)
	defer c.Close()
	for _, delay := range []time.Duration{0, 20 * time.Second} {
		req := driver.Request{Name: "n" + delay.String(), Owner: "a" + delay.String(), TTL: 80 * time.Second, MinHold: 71*time.Second + delay, LockDelay: delay}
		g := take(t, c, req)
		lease, err := c.etcd.TimeToLive(t.Context(), clientv3.LeaseID(leaseOf(t, c, req.Name)))
		if err != nil {
			t.Fatal(err)
		}
		ends := time.Duration(lease.GrantedTTL)*time.Second - delay
		if ends > req.TTL {
			t.Fatalf("the lease of %d s is not shorter than the TTL", lease.GrantedTTL)
		}
		if g.Valid > ends {
			t.Errorf("P1: a hold on a lease of %d s, with a lock-delay of %v, is trusted for %v", lease.GrantedTTL, delay, g.Valid)
		}
		before := g.Since.Add(ends)
		if r := c.Renew(t.Context(), []driver.Grant{g})[0]; r.Err != nil || r.Since.Add(r.Valid) > before {
			t.Errorf("P1: its renewal gives %+v, its lease ends at %v", r, before)
		}
	}
}
