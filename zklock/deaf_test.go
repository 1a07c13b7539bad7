package zklock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestDeafHolder: nothing reaches the holder any more, though what it sends arrives. It is at any server (of a holder at
// the leader the conformance suite says the same), and offers its session again only until the session is lost by its
// own clock, so the name opens while it is deaf.
func TestDeafHolder(t *testing.T) {
	t.Parallel()
	x := fixture{testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{TickTime: quick, FourLetters: "none"})}
	proxy := chaos.StartProxy(t, x.Members[0].Addr)
	deaf, other := lockClient(t, proxy.Addr), lockClient(t, x.Members[0].Addr)
	lease, err := deaf.Mutex("deaf", &holdfast.Options{TTL: time.Second}).Acquire(t.Context())
	must(t, err)
	proxy.HoldReplies()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	next, err := other.Mutex("deaf", &holdfast.Options{TTL: time.Second}).Acquire(ctx)
	if err != nil {
		t.Fatalf("P5: the name of a deaf holder does not open: %v", err)
	}
	if lease.Err() == nil {
		t.Error("P1: the deaf holder trusts its lease beside the next one")
	}
	must(t, next.Release())
}

func lockClient(t *testing.T, server string) *holdfast.Client {
	t.Helper()
	c, err := holdfast.New(dial(t, Config{Servers: []string{server}}), nil)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// TestUnheardWaiter: a waiter hears nothing for as long as its session lasts. The server may have kept that session:
// the place that is left there does not keep the waiter itself waiting.
func TestUnheardWaiter(t *testing.T) {
	x := fixture{start(t)}
	proxy := chaos.StartProxy(t, x.Members[0].Addr)
	clock := &handClock{}
	clock.pass(time.Hour)
	holder, waiter := x.open(t), dial(t, Config{Servers: []string{proxy.Addr}, Clock: clock})
	defer waiter.Close()
	first, r := request("unheard"), request("unheard")
	first.TTL, r.TTL = 2*time.Minute, 2*time.Minute
	g := take(t, holder, first)
	queue(t, waiter, r)
	s := waiter.known(r.Name, r.Owner).keeper
	proxy.Cut()
	clock.pass(r.TTL)
	eventually(t, "the session is lost by the client's clock", func() bool { return s.session.Err() != nil })
	proxy.Heal()
	release(t, holder, g)
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	for {
		g, err := waiter.Enqueue(ctx, r)
		if err == nil {
			release(t, waiter, g)
			return
		}
		if ctx.Err() != nil {
			t.Fatal("P7: the waiter waits behind its own earlier place")
		}
		if errors.Is(err, driver.ErrHeld) {
			time.Sleep(quick)
		}
	}
}

// TestUnheardHolder: a holder hears nothing for as long as its session lasts. The server still has its node, so a
// renewal does not say that the hold is gone (P4).
func TestUnheardHolder(t *testing.T) {
	x := fixture{start(t)}
	proxy := chaos.StartProxy(t, x.Members[0].Addr)
	clock := &handClock{}
	clock.pass(time.Hour)
	holder, other := dial(t, Config{Servers: []string{proxy.Addr}, Clock: clock}), x.open(t)
	defer holder.Close()
	r := request("unheard holder")
	r.TTL = 2 * time.Minute
	g := take(t, holder, r)
	s := holder.known(r.Name, r.Owner).keeper
	proxy.Cut()
	clock.pass(s.timeout)
	eventually(t, "the session is lost by the client's clock", func() bool { return s.since() == 0 })
	proxy.Heal()
	if err := holder.Renew(t.Context(), []driver.Grant{g})[0].Err; err == nil || driver.Gone(err) {
		t.Errorf("P4: the server has the hold's node, and its renewal returned %v", err)
	}
	if _, err := other.Try(t.Context(), request(r.Name)); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("P1: the server has the hold's node, and another Try returned %v", err)
	}
}
