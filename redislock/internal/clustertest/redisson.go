package clustertest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/redislock"
)

// Redisson tests how waiters in a cluster hear of releases by Redisson's channels, over a client library. Nobody polls,
// so whoever is not told waits for ever.
func Redisson(t *testing.T, valkey bool, connect func(testing.TB, *testserver.Cluster) redislock.Conn) {
	servers := testserver.StartCluster(t, testserver.ClusterOptions{Replicas: true, Valkey: valkey})
	open := func() *holdfast.Client {
		d, err := redislock.New(t.Context(), connect(t, servers), &redislock.Options{
			Poll: time.Hour, Layout: redislock.Redisson, Redisson: redislock.RedissonFair,
		})
		if err != nil {
			t.Fatal(err)
		}
		c, err := holdfast.New(d, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	w := world{t, servers, open(), open()}
	t.Run("everywhere", w.everywhere)
	t.Run("a name moves", func(t *testing.T) {
		from, to := servers.Servers[0], servers.Servers[1]
		for range 3 {
			name := servers.KeyOf(from)
			w.handOver(t, name, func() {
				w.told(t, name, from)
				servers.Move(w.slot(t, name), from, to, 0)
			})
			w.handOver(t, name, func() {})
		}
	})
	t.Run("a master is killed", func(t *testing.T) {
		master := servers.Servers[2]
		name := servers.KeyOf(master)
		w.handOver(t, name, func() {
			w.told(t, name, master)
			await(t, "the replica has all", func() bool { return master.Ask("WAIT", "1", "1000") == "1" })
			master.Kill()
			servers.AwaitMaster(name, master)
		})
		w.handOver(t, name, func() {})
	})
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

// told waits until the waiter for a name is subscribed at its master.
func (w world) told(t *testing.T, name string, master *testserver.Redis) {
	t.Helper()
	await(t, "the waiter is subscribed", func() bool {
		return slices.ContainsFunc(channels(master), func(channel string) bool {
			return strings.HasPrefix(channel, "redisson_lock__channel:{"+name+"}:")
		})
	})
}
