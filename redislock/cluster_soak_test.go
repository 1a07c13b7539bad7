//go:build soak

package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/redislock"
)

func inCluster(t testing.TB, c *testserver.Cluster, o *redislock.Options) driver.Driver {
	t.Helper()
	conn, err := redislock.Dial(context.Background(), &url.URL{Scheme: "redis+cluster", Host: c.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	d, err := redislock.New(t.Context(), conn, o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestClusterNews: waiters for names of all masters hear of grants, also when the slot of a name has moved. Nobody
// polls, so whoever is not told waits for ever (P7).
func TestClusterNews(t *testing.T) {
	servers := testserver.StartCluster(t, testserver.ClusterOptions{})
	open := func() *holdfast.Client {
		c, err := holdfast.New(inCluster(t, servers, &redislock.Options{Poll: time.Hour}), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	holder, waiter := open(), open()
	from, to := servers.Servers[0], servers.Servers[1]
	moved := servers.KeyOf(from)
	slot, err := strconv.Atoi(from.Ask("CLUSTER", "KEYSLOT", moved))
	if err != nil {
		t.Fatal(err)
	}
	handOver(t, holder, waiter, moved, func() { servers.Move(slot, from, to, 0) })
	for i := range 12 {
		handOver(t, holder, waiter, fmt.Sprint("name", i), func() {})
	}
}

// handOver lets one client wait for a name that the other holds, does something meanwhile, and passes the
// name on.
func handOver(t *testing.T, holder, waiter *holdfast.Client, name string, meanwhile func()) {
	t.Helper()
	lease, err := holder.Mutex(name, nil).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		lease, err := waiter.Mutex(name, nil).Acquire(t.Context())
		if err == nil {
			err = lease.Release()
		}
		got <- err
	}()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		info, err := holder.Inspect(t.Context(), name)
		if err == nil && len(info.Waiters) == 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("no waiter is queued")
		}
	}
	meanwhile()
	if err := lease.Release(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatalf("P7: nobody has told the waiter for %s within a minute", name)
	}
}

// TestSubscriptionMoves: a waiter was subscribed at the server that has the name, and is subscribed at
// another when the name is released. Nobody listens at the first any more, but the waiter hears of its
// grant. It must not be taken for dead there, because then the name would be granted twice (P1).
func TestSubscriptionMoves(t *testing.T) {
	t.Parallel()
	c := testserver.StartCluster(t, testserver.ClusterOptions{})
	holder, waiter := inCluster(t, c, nil), inCluster(t, c, nil)
	defer holder.Close()
	defer waiter.Close()
	queue, _ := driver.As[driver.Queuer](waiter)
	subscribed := func() (n int) {
		for _, r := range c.Servers {
			n += len(strings.Fields(r.Ask("PUBSUB", "CHANNELS", "holdfast:*")))
		}
		return n
	}
	for i := range 60 {
		req := driver.Request{Name: fmt.Sprint("moves/", i), Owner: fmt.Sprint("holder", i), TTL: time.Minute}
		held, err := holder.Try(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		req.Owner = fmt.Sprint("waiter", i)
		if _, err := queue.Enqueue(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("a second request: %v", err)
		}
		for _, r := range c.Servers {
			_ = r.Ask("CLIENT", "KILL", "TYPE", "pubsub")
		}
		for end := time.Now().Add(time.Minute); subscribed() < 2; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the clients do not subscribe again")
			}
		}
		if err := holder.Release(t.Context(), []driver.Grant{held})[0]; err != nil {
			t.Fatal(err)
		}
		g, err := queue.Wait(t.Context(), req)
		if errors.Is(err, driver.ErrHeld) { // it has heard first that messages may have been lost
			g, err = queue.Enqueue(t.Context(), req)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := waiter.Renew(t.Context(), []driver.Grant{g})[0].Err; err != nil {
			t.Errorf("P1: round %d: a grant that the store has taken back was delivered: %v", i, err)
		}
		if err := waiter.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
			t.Errorf("round %d: %v", i, err)
		}
	}
}
