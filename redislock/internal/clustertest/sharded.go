package clustertest

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/redislock"
)

// Sharded tests how waiters in a cluster hear of their grants, over a client library. Nobody polls, so
// whoever is not told waits for ever.
func Sharded(t *testing.T, valkey bool, connect func(testing.TB, *testserver.Cluster) redislock.Conn) {
	servers := testserver.StartCluster(t, testserver.ClusterOptions{Replicas: true, Valkey: valkey})
	open := func() *holdfast.Client {
		d, err := redislock.New(t.Context(), connect(t, servers), &redislock.Options{Poll: time.Hour})
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
	t.Run("near", w.near)
	t.Run("a name moves", w.nameMoves)
	t.Run("a channel moves", w.channelMoves)
	t.Run("a master is killed", w.killed)
}

// world is a cluster with a client that holds and one that waits.
type world struct {
	testing.TB
	servers        *testserver.Cluster
	holder, waiter *holdfast.Client
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

// joins makes the waiter's client subscribe at the master of a name.
func (w world) joins(t *testing.T, name string) {
	t.Helper()
	w.handOver(t, name, func() { w.joined(t, w.servers.Master(name)) })
}

func (w world) joined(t *testing.T, master *testserver.Redis) {
	t.Helper()
	await(t, "the client is subscribed at the master", func() bool { return channels(master) != nil })
}

// channels returns the sharded channels of a server.
func channels(r *testserver.Redis) []string { return strings.Fields(r.Ask("PUBSUB", "SHARDCHANNELS")) }

// near: of a grant only those hear who are subscribed at the name's master; the servers send each other
// nothing but to the master's replica.
func (w world) near(t *testing.T) {
	const rounds = 20
	master := w.servers.Servers[0]
	name := w.servers.KeyOf(master)
	w.joins(t, name)
	counts := func(r *testserver.Redis) map[string]int {
		stats := r.Ask("INFO", "commandstats") + "\n" + r.Ask("CLUSTER", "INFO")
		n := map[string]int{}
		for _, m := range counter.FindAllStringSubmatch(stats, -1) {
			n[m[1]+m[3]], _ = strconv.Atoi(m[2] + m[4])
		}
		return n
	}
	before := map[*testserver.Redis]map[string]int{}
	for _, r := range w.servers.Servers {
		before[r] = counts(r)
	}
	for range rounds {
		w.handOver(t, name, func() {})
	}
	for i, r := range w.servers.Servers {
		want := map[string]int{}
		switch r {
		case master:
			want = map[string]int{"cmdstat_spublish": rounds, "publishshard_sent": rounds}
		case w.servers.ReplicaOf(master):
			want = map[string]int{"publishshard_received": rounds}
		}
		got := counts(r)
		for what := range maps.Keys(got) {
			if got[what] -= before[r][what]; got[what] == 0 {
				delete(got, what)
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%d grants: server %d has counted %v, not %v", rounds, i, got, want)
		}
		if has := channels(r); (len(has) == 1) != (r == master) {
			t.Errorf("server %d has the channels %q", i, has)
		}
	}
}

// counter matches what servers count of messages.
var counter = regexp.MustCompile(`(cmdstat_s?publish):calls=(\d+)|cluster_stats_messages_(publish(?:shard)?_(?:sent|received)):(\d+)`)

// nameMoves: the slot of a name is moved while a client waits for it. Its place names the channel at the
// master before.
func (w world) nameMoves(t *testing.T) {
	from, to := w.servers.Servers[0], w.servers.Servers[1]
	w.joins(t, w.servers.KeyOf(from))
	for range 3 {
		name := w.servers.KeyOf(from)
		w.handOver(t, name, func() { w.servers.Move(w.slot(t, name), from, to, 0) })
	}
}

func (w world) slot(t *testing.T, key string) int {
	t.Helper()
	slot, err := strconv.Atoi(w.servers.Servers[0].Ask("CLUSTER", "KEYSLOT", key))
	if err != nil {
		t.Fatal(err)
	}
	return slot
}

// channelMoves: the slot of the channel is moved, and the name's is not. The server ends the subscription,
// and the client subscribes to another channel there.
func (w world) channelMoves(t *testing.T) {
	from, to := w.servers.Servers[0], w.servers.Servers[1]
	for range 3 {
		name := w.servers.KeyOf(from)
		w.joins(t, name)
		before := channels(from)
		w.handOver(t, name, func() { w.servers.Move(w.slot(t, before[0]), from, to, 0) })
		await(t, "the client is subscribed to another channel there", func() bool {
			now := channels(from)
			return len(now) == 1 && !slices.Equal(now, before)
		})
		w.handOver(t, name, func() {})
	}
}

// killed: the master of a name is killed while a client waits for it, and its replica takes over.
func (w world) killed(t *testing.T) {
	master := w.servers.Servers[2]
	name := w.servers.KeyOf(master)
	w.joins(t, name)
	w.handOver(t, name, func() {
		await(t, "the replica has all", func() bool { return master.Ask("WAIT", "1", "1000") == "1" })
		master.Kill()
		w.servers.AwaitMaster(name, master)
	})
	w.joins(t, name)
	w.handOver(t, name, func() {})
}

func await(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}
