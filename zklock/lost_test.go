//go:build soak

package zklock

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// kinds are requests of each kind for a name.
func kinds(name string) map[string]driver.Request {
	mutex, writer, reader, slots := request(name), request(name), request(name), request(name)
	writer.RW = true
	reader.RW, reader.Mode = true, driver.Shared
	slots.Mode, slots.Slots, slots.Permits = driver.Slot, 3, 2
	return map[string]driver.Request{"mutex": mutex, "writer": writer, "reader": reader, "slots": slots}
}

// ownNodes counts the nodes of a request's owner.
func ownNodes(java raw, name string, r driver.Request) (n int) {
	for _, dir := range []string{"/" + name, "/" + name + "/locks", "/" + name + "/leases"} {
		for _, child := range java.children(dir) {
			if e, ok := parseEntry(child); ok && len(child) > 39 && child[:40] == guidOf(r.Owner) && e.name != "" {
				n++
			}
		}
	}
	return n
}

// TestReapedParents: the server removes directories that are empty, at any time.
func TestReapedParents(t *testing.T) {
	t.Parallel()
	x := fixture{testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{TickTime: quick, Containers: 2 * time.Millisecond})}
	c := x.open(t)
	reaped := 0
	java := x.raw(t)
	for range 40 {
		for kind, r := range kinds("a/b/c") {
			r.Name += "/" + kind
			g, err := c.Enqueue(t.Context(), r)
			if err != nil {
				t.Fatalf("P7: %s: %v", kind, err)
			}
			release(t, c, g)
		}
		time.Sleep(time.Duration(rand.IntN(int(20 * time.Millisecond))))
		if replies, err := java.Do(t.Context(), zk.Exists("/a/b/c/mutex", nil)); err == nil && errors.Is(replies[0].Err, zk.NoNode) {
			reaped++
		}
	}
	if reaped == 0 {
		t.Error("the server has removed no directory")
	}
	t.Logf("%d of 40 times the directory was removed", reaped)
}

// TestLeasesReapedBetweenReads: the server removes empty leases between the two reads of them. The place stays:
// a client that took it for gone would take another, and the one left behind would keep everybody out.
func TestLeasesReapedBetweenReads(t *testing.T) {
	t.Parallel()
	x := fixture{start(t)}
	holder, waiter := x.open(t), x.open(t)
	slot := request("reaped")
	slot.Mode, slot.Slots, slot.Permits = driver.Slot, 1, 1
	g := take(t, holder, slot)
	slot.Owner = request("reaped").Owner
	queue(t, waiter, slot)
	a := &call{c: waiter, o: waiter.known(slot.Name, slot.Owner), req: &slot}
	for i := 1; i <= 2; i++ {
		replies, err := a.o.keeper.do(t.Context(), a.slotsOps()...)
		must(t, err)
		replies[i] = zk.Reply{Err: zk.NoNode}
		if err := a.seeSlots(t.Context(), replies); err != nil || !a.view.leases {
			t.Errorf("P6: with read %d of the leases too late the place is %+v, %v", i, a.view, err)
		}
	}
	release(t, holder, g)
	release(t, waiter, granted(t, waiter, slot))
}

// TestCloseKeepsLockDelays: a hold that is left at Close ends at once, unless it has a lock-delay.
func TestCloseKeepsLockDelays(t *testing.T) {
	t.Parallel() // it waits most of the time
	x := fixture{start(t)}
	c := x.open(t)
	for _, delay := range []time.Duration{0, time.Second} {
		left := x.open(t)
		r := request("left")
		r.TTL, r.LockDelay = time.Second, delay
		g := take(t, left, r)
		must(t, left.Close())
		next := request("left")
		if delay == 0 {
			release(t, c, take(t, c, next))
			continue
		}
		queue(t, c, next)
		release(t, c, granted(t, c, next))
		if early := g.Since.Add(g.Valid + delay).Sub(driver.HostClock.Now()); early > 0 {
			t.Errorf("P5: the name opened %v before its lock-delay was over", early)
		}
	}
}

// TestLossOfASession: a cut that is longer than the session costs all holds of the session, and their client is told
// as soon as it can know. A Try that waited for a connection finds the session over, and is granted in another.
func TestLossOfASession(t *testing.T) {
	t.Parallel() // it waits most of the time
	x := fixture{testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{TickTime: quick, MaxSession: 2 * time.Second})}
	proxy := chaos.StartProxy(t, x.Members[0].Addr)
	clock := &handClock{} // by the client's clock, which stands still, the session is never over
	clock.pass(time.Hour)
	c := dial(t, Config{Servers: []string{proxy.Addr}, Clock: clock})
	defer c.Close()
	grants := []driver.Grant{take(t, c, request("lost/1")), take(t, c, request("lost/2"))}
	proxy.Cut()
	time.Sleep(2*time.Second + 5*quick)
	waits := make(chan error, 1)
	go func() {
		g, err := c.Try(t.Context(), request("lost/next"))
		if err == nil {
			err = c.Release(t.Context(), []driver.Grant{g})[0]
		}
		waits <- err
	}()
	time.Sleep(quick / 4)
	proxy.Heal()
	if err := <-waits; err != nil {
		t.Errorf("P7: a Try that waited for a connection, and found the session over: %v", err)
	}
	select {
	case loss := <-c.Losses():
		if len(loss.Owners) != len(grants) || !errors.Is(loss.Err, driver.ErrNotHeld) {
			t.Errorf("P2: told was %+v", loss)
		}
	case <-time.After(within):
		t.Fatal("P2: the loss of a session is not told")
	}
	for _, r := range c.Renew(t.Context(), grants) {
		if !errors.Is(r.Err, driver.ErrNotHeld) {
			t.Errorf("P2: renewing a hold whose session is over: %v", r.Err)
		}
	}
}

// TestEndedWhileGranted: a server says that the session is over while the answers are read that make a hold
// of a place. Nobody would tell of the loss of such a hold.
func TestEndedWhileGranted(t *testing.T) {
	t.Parallel()
	x := fixture{start(t)}
	holder, waiter := x.open(t), x.open(t)
	g := take(t, holder, request("ended"))
	r := request("ended")
	r.TTL = time.Second
	queue(t, waiter, r)
	release(t, holder, g)
	a := &call{c: waiter, o: waiter.known(r.Name, r.Owner), req: &r, timeout: r.TTL}
	a.o.busy <- struct{}{}
	ended := a.o.keeper
	ended.end(zk.ErrExpired)
	err := a.hold(true)
	<-a.o.busy
	ended.session.Abandon()
	if !errors.Is(err, driver.ErrUncertain) {
		t.Errorf("P2: a hold of a session that is over was granted: %+v, %v", a.grant, err)
	}
	// At the server the session lives on for a while, as behind an old leader: what is left of the place goes
	// with it, or by its client.
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := waiter.Release(t.Context(), []driver.Grant{{Request: r}})[0]
		if err == nil || driver.Gone(err) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("P6: withdrawing it: %v", err)
		}
	}
	release(t, holder, take(t, holder, request("ended")))
}

// TestRenewedTooLate: the answer to a renewal comes when the hold has lapsed and its client is about to
// delete the node.
func TestRenewedTooLate(t *testing.T) {
	t.Parallel()
	x := fixture{start(t)}
	c := x.open(t)
	g := take(t, c, request("late"))
	o := c.known(g.Name, g.Owner)
	o.busy <- struct{}{} // nobody deletes it meanwhile
	c.mu.Lock()
	until := o.until
	o.until = c.clock.Now()
	late := c.renewedLocked(o.keeper, look{o: o}, &g, nil, nil)
	o.until = until
	c.mu.Unlock()
	<-o.busy
	if !errors.Is(late.Err, driver.ErrNotHeld) {
		t.Errorf("P1: a hold that has lapsed was renewed: %+v", late)
	}
	release(t, c, g)
}

// TestWithdrawalGoesOn: a waiter gives up while no server answers, and nobody asks for that again. Its place goes
// when a server answers, and not only when places end that nobody confirms.
func TestWithdrawalGoesOn(t *testing.T) {
	t.Parallel()
	x := fixture{start(t)}
	proxy := chaos.StartProxy(t, x.Members[0].Addr)
	waiting := dial(t, Config{Servers: []string{proxy.Addr}, Poll: time.Minute})
	defer waiting.Close()
	other := x.open(t)
	hold := take(t, other, request("gives/up"))
	r := request("gives/up")
	r.TTL = time.Minute // so that its session outlasts all
	if _, err := waiting.Enqueue(t.Context(), r); !errors.Is(err, driver.ErrHeld) {
		t.Fatal(err)
	}
	proxy.Cut()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := waiting.Release(ctx, []driver.Grant{{Request: r}})[0]; err == nil || driver.Gone(err) {
		t.Fatalf("P6: withdrawn without an answer: %v", err)
	}
	proxy.Heal()
	java := x.raw(t)
	eventually(t, "P7: the place of a waiter that has given up is gone", func() bool { return ownNodes(java, r.Name, r) == 0 })
	release(t, other, hold)
}

// TestServerFailed: a server that fails while it writes its answer says so, although the node may be there. The
// request is withdrawn then, as one without an answer.
func TestServerFailed(t *testing.T) {
	t.Parallel()
	x := fixture{start(t)}
	c := x.open(t)
	for kind, r := range kinds("failed") {
		reserved, err := c.reserve(t.Context(), r.Name, r.Owner)
		must(t, err)
		a := &call{c: c, o: reserved, req: &r, timeout: r.TTL}
		if err := a.created([]zk.Reply{{Err: zk.Code(-5)}}, nil); !errors.Is(err, driver.ErrUncertain) {
			t.Errorf("P6: %s: a node that may be there: %v", kind, err)
		}
		if err := a.created([]zk.Reply{{Err: zk.NoAuth}}, nil); err == nil || errors.Is(err, driver.ErrUncertain) {
			t.Errorf("P6: %s: a node that was refused: %v", kind, err)
		}
		c.unreserve(reserved)
		if err := c.Release(t.Context(), []driver.Grant{{Request: r}})[0]; err != nil && !driver.Gone(err) {
			t.Errorf("P6: %s: withdrawing: %v", kind, err)
		}
	}
}

// TestStraysOfAnEndedSession: a session has ended for its connection, and its client has not heard of it yet. The
// place that it had may be there for as long as the server keeps the session, so who withdraws looks for it too.
func TestStraysOfAnEndedSession(t *testing.T) {
	t.Parallel()
	x := fixture{start(t)}
	c, other, java := x.open(t), x.open(t), x.raw(t)
	hold := take(t, other, request("strays"))
	r := request("strays")
	queue(t, c, r)
	c.known(r.Name, r.Owner).keeper.session.Abandon() // at the server it goes on
	queue(t, c, r)
	if n := ownNodes(java, r.Name, r); n != 2 {
		t.Fatalf("there are %d nodes, not one of each session", n)
	}
	if err := c.Release(t.Context(), []driver.Grant{{Request: r}})[0]; driver.Gone(err) {
		t.Errorf("P6: withdrawing: %v", err)
	}
	if n := ownNodes(java, r.Name, r); n != 0 {
		t.Errorf("P6: a request that was withdrawn has %d nodes", n)
	}
	release(t, other, hold)
}
