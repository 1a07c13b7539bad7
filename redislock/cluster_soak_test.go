//go:build soak

package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/redislock"
)

// world is a cluster with a client that holds and one that waits.
type world struct {
	servers        *testserver.Cluster
	sharded        bool
	holder, waiter *holdfast.Client
}

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

// TestClusterNews: waiters in a cluster hear of grants, and of releases by Redisson's sharded channels, while
// slots and servers change. Nobody polls, so whoever is not told waits for ever (P7).
func TestClusterNews(t *testing.T) {
	for name, o := range map[string]*redislock.Options{
		"own layout": {Poll: time.Hour},
		"Redisson":   {Poll: time.Hour, Layout: redislock.Redisson, Redisson: redislock.RedissonFair},
	} {
		t.Run(name, func(t *testing.T) {
			servers := testserver.StartCluster(t, testserver.ClusterOptions{Replicas: true})
			open := func() *holdfast.Client {
				c, err := holdfast.New(inCluster(t, servers, o), nil)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Close() })
				return c
			}
			w := world{servers, o.Layout == redislock.Redisson, open(), open()}
			t.Run("everywhere", w.everywhere)
			t.Run("a name moves", w.moves)
			t.Run("a master is killed", w.killed)
		})
	}
}

// everywhere: one client waits for names of all masters at the same time.
func (w world) everywhere(t *testing.T) {
	for i := range 12 {
		name := fmt.Sprint("name", i)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 5 {
				w.handOver(t, name, func() { w.told(t, name, w.servers.Master(name)) })
			}
		})
	}
}

func (w world) moves(t *testing.T) {
	from, to := w.servers.Servers[0], w.servers.Servers[1]
	for range 3 {
		name := w.servers.KeyOf(from)
		slot, err := strconv.Atoi(from.Ask("CLUSTER", "KEYSLOT", name))
		if err != nil {
			t.Fatal(err)
		}
		w.handOver(t, name, func() {
			w.told(t, name, from)
			w.servers.Move(slot, from, to, 0)
		})
		w.handOver(t, name, func() {})
	}
}

func (w world) killed(t *testing.T) {
	master := w.servers.Servers[2]
	name := w.servers.KeyOf(master)
	w.handOver(t, name, func() {
		w.told(t, name, master)
		await(t, "the replica has all", func() bool { return master.Ask("WAIT", "1", "1000") == "1" })
		master.Kill()
		w.servers.AwaitMaster(name, master)
	})
	w.handOver(t, name, func() {})
}

// told waits until the waiter for a name is subscribed at its master, if it has to be.
func (w world) told(t *testing.T, name string, master *testserver.Redis) {
	t.Helper()
	await(t, "the waiter is subscribed", func() bool {
		return !w.sharded || slices.ContainsFunc(strings.Fields(master.Ask("PUBSUB", "SHARDCHANNELS")), func(channel string) bool {
			return strings.HasPrefix(channel, "redisson_lock__channel:{"+name+"}:")
		})
	})
}

// handOver lets one client wait for a name that the other holds, does something meanwhile, and passes the
// name on.
func (w world) handOver(t *testing.T, name string, meanwhile func()) {
	t.Helper()
	lease, err := w.holder.Mutex(name, nil).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		lease, err := w.waiter.Mutex(name, nil).Acquire(t.Context())
		if err == nil {
			err = lease.Release()
		}
		got <- err
	}()
	await(t, "a waiter is queued", func() bool {
		info, err := w.holder.Inspect(t.Context(), name)
		return err == nil && len(info.Waiters) == 1
	})
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

func await(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
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
