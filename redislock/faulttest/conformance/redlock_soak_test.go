//go:build soak

package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/quorum"
)

// TestRedlockURL: the URL of a Redlock lists its nodes, a majority of which must be there.
func TestRedlockURL(t *testing.T) {
	nodes := startNodes(t, 3, testserver.RedisOptions{})
	nodes[1].Kill()
	addresses := nodes.addresses()
	open := func(raw string) (driver.Driver, error) {
		u, err := driver.ParseURL(raw)
		if err != nil {
			return nil, err
		}
		return driver.Open(t.Context(), u)
	}
	d, err := open("redlock://" + strings.Join(addresses, ","))
	if err != nil {
		t.Fatal(err)
	}
	g, err := d.Try(t.Context(), driver.Request{Name: "orders/42", Owner: "a", TTL: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// redlockClient opens a client of package holdfast on the nodes, by their URL.
func redlockClient(t testing.TB, nodes servers) *holdfast.Client {
	t.Helper()
	c, err := holdfast.Open(t.Context(), "redlock://"+strings.Join(nodes.addresses(), ","))
	if err != nil {
		t.Fatal(err)
	}
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
		d, err := driver.Open(t.Context(), &url.URL{Scheme: "redis", Host: server.Addr})
		if err != nil {
			t.Fatal(err)
		}
		info, err := d.(driver.Operator).Inspect(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
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

// TestRedlockCrowd: eight clients want one name again and again, and split the votes. Each gets it as often as it
// wants, alone, and no attempt that has failed leaves a vote.
func TestRedlockCrowd(t *testing.T) {
	nodes := startNodes(t, 5, testserver.RedisOptions{})
	var inside atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		c := redlockClient(t, nodes)
		all.Go(func() {
			for range 15 {
				ctx, cancel := context.WithTimeout(t.Context(), hanging)
				lease, err := c.Mutex("orders/42", nil).Acquire(ctx)
				cancel()
				if err != nil {
					t.Errorf("Acquire: %v", err)
					return
				}
				if inside.Add(1) != 1 {
					t.Error("P1: two clients have the lock")
				}
				inside.Add(-1)
				if err := lease.Release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for end := time.Now().Add(hanging); votesAt(t, nodes, "orders/42") > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("an attempt that has failed has left a vote")
		}
	}
}

// TestRedlockWithdrawn: a request whose caller gives up before the servers have answered is withdrawn when they do.
// Nothing is left of it, and no tombstone, which would make requests for the name slow for a minute.
func TestRedlockWithdrawn(t *testing.T) {
	nodes := startNodes(t, 5, testserver.RedisOptions{})
	d := redlock(t, nodes.addresses(), quorum.Options{NodeTimeout: 2 * hanging, MaxTTL: 4 * hanging})
	defer d.Close()
	request := driver.Request{Name: "orders/42", Owner: "warm", TTL: 4 * hanging}
	g, err := d.Try(t.Context(), request) // so that all nodes are connected
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes {
		node.Pause()
		defer node.Resume()
	}
	request.Owner = "hasty"
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	g, err = d.Try(ctx, request)
	if !errors.Is(err, driver.ErrUncertain) {
		t.Fatalf("Try at servers that stand still: %v", err)
	}
	g.Stray = true // as package holdfast says
	withdrawn := make(chan error, 1)
	go func() { withdrawn <- d.Release(t.Context(), []driver.Grant{g})[0] }()
	time.Sleep(20 * time.Millisecond) // most often it waits by then
	for _, node := range nodes {
		node.Resume()
	}
	select {
	case err := <-withdrawn:
		if err != nil && !driver.Gone(err) {
			t.Errorf("the withdrawal: %v", err)
		}
	case <-time.After(hanging):
		t.Fatal("the withdrawal does not end")
	}
	for end := time.Now().Add(hanging); votesAt(t, nodes, request.Name) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("P6: a request that was withdrawn has left a vote")
		}
	}
	for _, node := range nodes {
		if keys := node.Ask("KEYS", "holdfast:{orders/42}:gone"); keys != "" {
			t.Errorf("P6: a request that was withdrawn has left %s", keys)
		}
	}
}

// TestRedlockServerStopped: a server that stands still delays nothing. It goes on only after all is done,
// and no node is given up before.
func TestRedlockServerStopped(t *testing.T) {
	nodes := startNodes(t, 5, testserver.RedisOptions{})
	d := redlock(t, nodes.addresses(), quorum.Options{NodeTimeout: 2 * hanging, MaxTTL: 4 * hanging})
	defer d.Close()
	request := driver.Request{Name: "orders/42", Owner: "warm", TTL: 4 * hanging}
	for range 2 { // so that all nodes are connected
		g, err := d.Try(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
			t.Fatal(err)
		}
		request.Owner += "+"
	}
	nodes[2].Pause()
	defer nodes[2].Resume()
	ctx, cancel := context.WithTimeout(t.Context(), hanging) // shorter than the node's time-out
	defer cancel()
	for i := range 20 {
		request.Owner = fmt.Sprint("owner ", i)
		g, err := d.Try(ctx, request)
		if err != nil {
			t.Fatalf("Try with one server stopped: %v", err)
		}
		if r := d.Renew(ctx, []driver.Grant{g})[0]; r.Err != nil {
			t.Fatalf("Renew with one server stopped: %v", r.Err)
		}
		if _, err := d.(driver.Operator).Inspect(ctx, request.Name); err != nil {
			t.Fatalf("Inspect with one server stopped: %v", err)
		}
		if err := d.Release(ctx, []driver.Grant{g})[0]; err != nil {
			t.Fatalf("Release with one server stopped: %v", err)
		}
	}
	nodes[2].Resume()
	for end := time.Now().Add(hanging); votesAt(t, nodes, request.Name) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the server that was stopped has a vote for a hold that was released")
		}
	}
}

// TestRedlockClockSet: one server's clock is a minute ahead or behind, and is set by that while a lock is held. The
// lock excludes all the same, and its renewals restore the vote that has ended early.
func TestRedlockClockSet(t *testing.T) {
	nodes := startNodes(t, 4, testserver.RedisOptions{})
	nodes = append(nodes, testserver.StartRedis(t, testserver.RedisOptions{Clock: true}))
	nodes.init(t)
	clock := nodes[4].Clock
	a, b := redlockClient(t, nodes), redlockClient(t, nodes)
	for _, ahead := range []time.Duration{time.Minute, -time.Minute, 0} {
		lease, err := a.Mutex("orders/42", &holdfast.Options{Note: "A"}).Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// The release before it may still be under way, so the grant may rest on a bare majority. One of its votes
		// would end early, and the name would be free: the guarantees say that.
		allVotes(t, nodes, lease, "A")
		clock.Set(ahead)
		for range 5 {
			if _, err := b.Mutex("orders/42", nil).TryAcquire(t.Context()); !errors.Is(err, holdfast.ErrHeld) {
				t.Fatalf("with a clock %v ahead a second holder: %v", ahead, err)
			}
			if err := lease.Renew(t.Context()); err != nil {
				t.Fatalf("with a clock %v ahead, a renewal: %v", ahead, err)
			}
		}
		allVotes(t, nodes, lease, "A")
		if err := lease.Release(); err != nil {
			t.Errorf("with a clock %v ahead, a release: %v", ahead, err)
		}
		if err := acquire(t, b, "orders/42").Release(); err != nil {
			t.Errorf("with a clock %v ahead, the next one's release: %v", ahead, err)
		}
	}
}

// allVotes renews a lease until all nodes have its vote. They know it by its note.
func allVotes(t *testing.T, nodes servers, lease *holdfast.Lease, note string) {
	t.Helper()
	other := func(h driver.Holder) bool { return h.Note != note }
	for end := time.Now().Add(hanging); ; time.Sleep(10 * time.Millisecond) {
		has := slices.DeleteFunc(votes(t, nodes, lease.Name()), other)
		if len(has) == len(nodes) {
			return
		}
		if err := lease.Renew(t.Context()); err != nil || time.Now().After(end) {
			t.Fatalf("the lease has %d votes of %d: %v", len(has), len(nodes), err)
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
	d := redlock(t, addresses, o)
	b = redlock(t, nodes.addresses(), o)
	t.Cleanup(func() { d.Close(); b.Close() })
	if g, err := b.Try(t.Context(), driver.Request{Name: "other", Owner: "b", TTL: 4 * time.Second}); err != nil { // it knows all nodes
		t.Fatal(err)
	} else if err := b.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
		t.Fatal(err)
	}
	a, err := d.Try(t.Context(), driver.Request{Name: "orders/42", Owner: "a", TTL: 4 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
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
		a, b := bareMajority(t, quorum.Options{MaxTTL: 4 * time.Second}, forget)
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
	// The hold of all nodes' votes is not open to that: see TestRedlockClockSet.
	t.Run("a clock that is set forward", func(t *testing.T) {
		t.Parallel()
		a, b := bareMajority(t, quorum.Options{MaxTTL: 4 * time.Second}, setForward)
		until(b, a.Name)
		if now() >= a.Since.Add(a.Valid) {
			t.Error("B got the name only when A's hold was over: what a clock that is set forward breaks was not shown")
		}
		if v := b.Caps().Guarantees.Faults[driver.ClockForward]; v.Exclusion != driver.Breaks || !strings.Contains(v.Note, "bare majority") {
			t.Errorf("the driver says of %q: %+v", driver.ClockForward, v)
		}
	})
}

// TestRedlockNewDeployment: servers that nobody has said to be new do not count until the longest TTL is over.
func TestRedlockNewDeployment(t *testing.T) {
	t.Parallel()
	var nodes servers
	for range 3 {
		nodes = append(nodes, testserver.StartRedis(t, testserver.RedisOptions{}))
	}
	started := driver.HostClock.Now()
	const longest = 2 * time.Second
	c := redlock(t, nodes.addresses(), quorum.Options{MaxTTL: longest})
	defer c.Close()
	locks, err := holdfast.New(c, &holdfast.ClientOptions{TTL: longest})
	if err != nil {
		t.Fatal(err)
	}
	_, err = locks.Mutex("orders/42", nil).TryAcquire(t.Context())
	if !errors.Is(err, holdfast.ErrHeld) || !strings.Contains(fmt.Sprint(err), "forgotten") {
		t.Errorf("TryAcquire of a new deployment: %v", err)
	}
	if _, err := locks.Mutex("orders/42", &holdfast.Options{TTL: 2 * longest}).TryAcquire(t.Context()); err == nil || errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("a TTL above the longest: %v", err)
	}
	lease := acquire(t, locks, "orders/42")
	if waited := driver.HostClock.Now().Sub(started); waited < longest {
		t.Errorf("a new deployment grants a lock after %v", waited)
	}
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
	// It has admitted the nodes for all.
	other := redlock(t, nodes.addresses(), quorum.Options{MaxTTL: longest})
	defer other.Close()
	for end := time.Now().Add(hanging); ; time.Sleep(5 * time.Millisecond) {
		g, err := other.Try(t.Context(), driver.Request{Name: "orders/42", Owner: fmt.Sprint("b", time.Now()), TTL: longest})
		if err == nil {
			other.Release(t.Context(), []driver.Grant{g})
			break
		}
		if time.Now().After(end) {
			t.Fatalf("another client: %v", err)
		}
	}
}

// TestRedlockOutlivesRestarts: a lease outlives the restart of every node without memory, one after the other, as
// long as each has its delay.
func TestRedlockOutlivesRestarts(t *testing.T) {
	const longest = 5 * time.Second
	nodes := startNodes(t, 3, testserver.RedisOptions{})
	d := redlock(t, nodes.addresses(), quorum.Options{MaxTTL: longest})
	locks, err := holdfast.New(d, &holdfast.ClientOptions{TTL: longest})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	lease := acquire(t, locks, "orders/42")
	for i, node := range nodes {
		forget(node)
		// The lease is renewed each second. The vote is restored, and then the delay passes.
		for end := time.Now().Add(hanging); votesAt(t, nodes, "orders/42") < 3; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the vote of node %d is not restored", i)
			}
		}
		time.Sleep(longest + longest/10)
		if err := lease.Err(); err != nil {
			t.Fatalf("the lease does not outlive the restart of node %d: %v", i, err)
		}
	}
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
}
