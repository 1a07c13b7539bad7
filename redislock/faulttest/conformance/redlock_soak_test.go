//go:build soak

package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/quorum"
)

// redlockClient opens a client of package holdfast on the nodes, by their URL.
func redlockClient(t testing.TB, nodes servers) *holdfast.Client {
	t.Helper()
	c, err := holdfast.Open(t.Context(), "redlock://"+strings.Join(nodes.addresses(), ","))
	testserver.Must(t, err)
	t.Cleanup(func() { c.Close() }) // without a majority it cannot confirm what is left
	return c
}

// hanging bounds what takes no time.
const hanging = time.Minute

func acquire(t testing.TB, c *holdfast.Client, name string) *holdfast.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hanging)
	defer cancel()
	lease, err := c.Mutex(name, nil).Acquire(ctx)
	if err != nil {
		t.Fatalf("Acquire of a free lock: %v", err)
	}
	return lease
}

// votesAt returns how many holds the servers that run have on a name, of whomever.
func votesAt(t testing.TB, nodes servers, name string) int {
	t.Helper()
	return len(votes(t, nodes, name))
}

// votes returns the holds that the servers that run have on a name.
func votes(t testing.TB, nodes servers, name string) (all []driver.Holder) {
	t.Helper()
	for _, server := range nodes {
		d, err := driver.Open(t.Context(), &url.URL{Scheme: "redis", Host: server.Addr, RawQuery: "hf.forget=go"})
		testserver.Must(t, err)
		info, err := d.(driver.Operator).Inspect(t.Context(), name)
		testserver.Must(t, err)
		all = append(all, info.Holders...)
		d.Close()
	}
	return all
}

// TestRedlockServersKilled: locks go on with two servers of five killed, and leases from before stay. With three killed a
// lock is refused with an error that names the dead, and no vote is left at the others.
func TestRedlockServersKilled(t *testing.T) {
	nodes := startNodes(t, 5, testserver.RedisOptions{})
	a, b := redlockClient(t, nodes), redlockClient(t, nodes)
	before := acquire(t, a, "before")
	nodes[0].Kill()
	nodes[3].Kill()
	lease := acquire(t, b, "orders/42")
	if _, err := a.Mutex("orders/42", nil).TryAcquire(t.Context()); !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("with two servers killed, TryAcquire of a held lock: %v", err)
	}
	for _, l := range []*holdfast.Lease{lease, before} {
		if err := l.Renew(t.Context()); err != nil {
			t.Errorf("with two servers killed, a renewal: %v", err)
		}
		if err := l.Release(); err != nil {
			t.Errorf("with two servers killed, a release: %v", err)
		}
	}
	nodes[4].Kill()
	_, err := a.Mutex("orders/43", nil).TryAcquire(t.Context())
	if err == nil || errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("with three servers killed, TryAcquire: %v", err)
	}
	for _, dead := range []int{0, 3, 4} {
		if !strings.Contains(fmt.Sprint(err), nodes[dead].Addr) {
			t.Errorf("the error does not name the dead server %s: %v", nodes[dead].Addr, err)
		}
	}
	alive := servers{nodes[1], nodes[2]}
	for end := time.Now().Add(hanging); votesAt(t, alive, "orders/43") > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("an attempt without a majority has left a vote")
		}
	}
}

// forget kills a server and starts it again without its data.
func forget(server *testserver.Redis) {
	server.Kill()
	server.Start()
}

// forgetDisk is forget of a server that was durable.
func forgetDisk(server *testserver.Redis) {
	server.Kill()
	os.RemoveAll(filepath.Join(filepath.Dir(server.Socket), "appendonlydir"))
	server.Start()
}

// setForward sets a server's clock forward, so that all its holds end.
func setForward(server *testserver.Redis) { server.Clock.Set(time.Minute) }

// bareMajority has A take a name by the votes of nodes 0, 1 and 2 of five: the others cannot be reached. Then node
// 2 loses its vote, and the others can be reached again, by B.
func bareMajority(t *testing.T, o quorum.Options, lose func(*testserver.Redis)) (a driver.Grant, b driver.Driver) {
	t.Helper()
	o.NodeTimeout = 2 * time.Second // a machine that is busy is no fault of a node
	nodes := startNodes(t, 5, testserver.RedisOptions{Clock: true, AOF: o.Durable})
	addresses := nodes.addresses()
	for i := 3; i < 5; i++ {
		proxy := chaos.StartProxy(t, addresses[i])
		proxy.Cut()
		addresses[i] = proxy.Addr
	}
	const ttl = 4 * time.Second
	d := redlock(t, addresses, ttl, o)
	b = redlock(t, nodes.addresses(), ttl, o)
	t.Cleanup(func() { d.Close(); b.Close() })
	if g, err := b.Try(t.Context(), driver.Request{Name: "other", Owner: "b", TTL: ttl}); err != nil { // it knows all nodes
		t.Fatal(err)
	} else if err := b.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
		t.Fatal(err)
	}
	a, err := d.Try(t.Context(), driver.Request{Name: "orders/42", Owner: "a", TTL: ttl})
	testserver.Must(t, err)
	lose(nodes[2])
	return a, b
}

// TestRedlockNodeForgets: a node restarts without the vote that A's majority needs. B gets the name only when A's
// hold is over. With nodes that are said to be durable and lose their disks, B gets it beside A, and so it does if the vote
// ends early by the node's clock: the guarantees say that.
func TestRedlockNodeForgets(t *testing.T) {
	now := driver.HostClock.Now
	until := func(d driver.Driver, name string) driver.Grant {
		t.Helper()
		for end := now().Add(hanging); ; time.Sleep(5 * time.Millisecond) {
			g, err := d.Try(t.Context(), driver.Request{Name: name, Owner: fmt.Sprint("b", now()), TTL: 4 * time.Second})
			if err == nil {
				return g
			}
			if now() > end {
				t.Fatalf("nobody gets the name: %v", err)
			}
		}
	}
	t.Run("with the delay", func(t *testing.T) {
		t.Parallel()
		a, b := bareMajority(t, quorum.Options{}, forget)
		if g := until(b, a.Name); g.Since.Add(g.Valid) <= a.Since.Add(a.Valid) || now() < a.Since.Add(a.Valid) {
			t.Error("P1: two hold the name, because a node has forgotten its vote")
		}
	})
	t.Run("without", func(t *testing.T) {
		t.Parallel()
		a, b := bareMajority(t, quorum.Options{Durable: true}, forgetDisk)
		until(b, a.Name)
		if now() >= a.Since.Add(a.Valid) {
			t.Error("without the delay, B got the name only when A's hold was over: what the delay prevents was not shown")
		}
	})
	t.Run("a clock that is set forward", func(t *testing.T) {
		t.Parallel()
		a, b := bareMajority(t, quorum.Options{}, setForward)
		until(b, a.Name)
		if now() >= a.Since.Add(a.Valid) {
			t.Error("B got the name only when A's hold was over: what a clock that is set forward breaks was not shown")
		}
		if v := b.Caps().Guarantees.Faults[driver.ClockForward]; v.Exclusion != driver.Breaks || !strings.Contains(v.Note, "bare majority") {
			t.Errorf("the driver says of %q: %+v", driver.ClockForward, v)
		}
	})
}
