package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
)

// TestOneKeepalive: one lease has the keys of many holds.
func TestOneKeepalive(t *testing.T) {
	server := shared(t)
	c := dial(t, server.Addrs(), nil)
	var grants []driver.Grant
	for i := range 300 {
		grants = append(grants, take(t, c, request(fmt.Sprint("many/", i))))
	}
	leases, err := c.main.etcd.Leases(t.Context())
	must(t, err)
	if n := len(leases.Leases); n > 2 {
		t.Errorf("P9: 300 holds of one TTL are on %d leases", n)
	}
	for i, r := range c.Renew(t.Context(), grants) {
		if r.Err != nil || r.Since != c.sessions[30].since {
			t.Fatalf("P2: hold %d was renewed apart: %+v", i, r)
		}
	}
	for _, err := range c.Release(t.Context(), grants) {
		must(t, err)
	}
}

// TestClaimAfterHold: a claim is renewed to count from itself or later, although
// the lease that it comes to is of another hold and was kept alive before.
func TestClaimAfterHold(t *testing.T) {
	server := shared(t)
	holder, waiter := dial(t, server.Addrs(), nil), dial(t, server.Addrs(), nil)
	take(t, waiter, request("another"))
	held, req := take(t, holder, request("claimed")), request("claimed")
	places, err := waiter.session(t.Context(), waiter.minSeconds, waiter.clock.Now())
	must(t, err)
	line(t, waiter, req)
	release(t, holder, held)
	claim, err := await(t.Context(), waiter, req)
	if err != nil || claim.Since < places.since {
		t.Fatalf("P7: a waiter got %+v, %v", claim, err)
	}
	r := waiter.Renew(t.Context(), []driver.Grant{claim})[0]
	if r.Err != nil || r.Since < claim.Since || r.Valid < req.TTL*3/4 {
		t.Errorf("P2: a claim from %v on is renewed as %+v", claim.Since, r)
	}
	if over := waiter.sessions[30].since.Add(req.TTL); r.Since.Add(r.Valid) > over {
		t.Errorf("P1: a claim is renewed for %v longer than its lease", r.Since.Add(r.Valid).Sub(over))
	}
}

// TestKeptAliveOnce: the answer to a request whose asker has gone is not taken for that of a later request,
// which would be trusted for too long (P1).
func TestKeptAliveOnce(t *testing.T) {
	server := shared(t)
	proxy := chaos.StartProxy(t, server.Addrs())
	c := dial(t, proxy.Addr, nil)
	var leases [2]*session
	for i, secs := range []int64{60, 90} {
		var err error
		if leases[i], err = c.session(t.Context(), secs, 0); err != nil {
			t.Fatal(err)
		}
	}
	proxy.HoldReplies()
	gone, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := c.keepAlive(gone, leases[0].id, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("an asker that has gone got %v", err)
	}
	got := make(chan int64)
	go func() {
		ttl, _ := c.keepAlive(t.Context(), leases[1].id, time.Minute)
		got <- ttl
	}()
	proxy.Heal()
	if ttl := <-got; ttl != 90 {
		t.Errorf("the second request got %d, not its own answer", ttl)
	}
}

// TestMinHoldIsTrustedWithinItsLease: when a little more is left of a minimum hold than
// of the TTL its lease may end before a whole TTL has passed, so the holder trusts it for
// less (P1).
func TestMinHoldIsTrustedWithinItsLease(t *testing.T) {
	server := shared(t)
	c := dial(t, server.Addrs(), nil)
	for _, delay := range []time.Duration{0, 20 * time.Second} {
		req := driver.Request{Name: "n" + delay.String(), Owner: "a" + delay.String(), TTL: 80 * time.Second, MinHold: 71*time.Second + delay, LockDelay: delay}
		g := take(t, c, req)
		lease, err := c.main.etcd.TimeToLive(t.Context(), clientv3.LeaseID(leaseOf(t, c, req.Name)))
		must(t, err)
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
