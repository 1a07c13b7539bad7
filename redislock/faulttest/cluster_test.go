//go:build soak

package faulttest

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/drivertest/faults"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/redislock"
)

func clusterURL(c *testserver.Cluster) string { return "redis+cluster://" + c.Addrs() }

// TestClusterFailover: a master is killed, stopped, or demoted by an operator's order, while clients hold and wait,
// whose grants the replica acknowledges. All follow, nobody is stuck, holds are neither lost nor given twice, and
// tokens grow. The replica that has taken over has none of its own until the old master is back.
func TestClusterFailover(t *testing.T) {
	testserver.TakeTurn(t)
	servers := testserver.StartCluster(t, testserver.ClusterOptions{Replicas: true})
	for _, r := range servers.Servers[:3] {
		r.AwaitReplicas(1)
	}
	h := faults.Harness{URL: func(string) string { return clusterURL(servers) + "?hf.forget=go&hf.replicas=1" }}
	for i, f := range []struct {
		name      string
		end, back func(*testserver.Redis)
	}{
		{"killed", (*testserver.Redis).Kill, (*testserver.Redis).Start},
		{"stopped", (*testserver.Redis).Pause, (*testserver.Redis).Resume},
		{"promoted by hand", func(r *testserver.Redis) { servers.ReplicaOf(r).Ask("CLUSTER", "FAILOVER", "TAKEOVER") }, func(*testserver.Redis) {}},
	} {
		t.Run(f.name, func(t *testing.T) {
			faults.Under(t, h, "", failoverTTL, func() {
				before := servers.Servers[i]
				key := servers.KeyOf(before)
				f.end(before)
				servers.AwaitMaster(key, before)
				f.back(before)
			})
		})
	}
}

// TestClusterReplicas: in a cluster the replica of the name's own master must acknowledge a lock, also when
// the request was redirected; other masters' names are not touched by a replica that stands still.
func TestClusterReplicas(t *testing.T) {
	t.Parallel()
	servers := testserver.StartCluster(t, testserver.ClusterOptions{Replicas: true})
	c := openURL(t, clusterURL(servers)+"?hf.replicas=1")
	try := func(name string) error {
		lease, err := c.Mutex(name, nil).TryAcquire(t.Context())
		if err == nil {
			err = lease.Release()
		}
		return err
	}
	unacknowledged := func(err error) bool {
		_, is := errors.AsType[*redislock.UnacknowledgedError](err)
		return is
	}
	first, second := servers.Servers[0], servers.Servers[1]
	name, other := servers.KeyOf(first), servers.KeyOf(second)
	until(t, "replicas acknowledge", func() bool { return try(name) == nil && try(other) == nil })

	servers.ReplicaOf(first).Pause()
	if err := try(name); !unacknowledged(err) {
		t.Errorf("the replica of its master stands still: %v", err)
	}
	if err := try(other); err != nil {
		t.Errorf("the replica of another master stands still: %v", err)
	}
	servers.ReplicaOf(first).Resume()
	until(t, "the replica goes on", func() bool { return try(name) == nil })
	kept := acquire(t, c, name, &holdfast.Options{RenewEvery: -1})

	slot, err := strconv.Atoi(first.Ask("CLUSTER", "KEYSLOT", name))
	must(t, err)
	servers.ReplicaOf(second).Pause()
	servers.Move(slot, first, second, 0)
	if err := kept.Renew(t.Context()); !unacknowledged(err) {
		t.Errorf("the name has moved to a master whose replica stands still: a renewal: %v", err)
	}
	servers.ReplicaOf(second).Resume()
	until(t, "the replica goes on", func() bool { return kept.Renew(t.Context()) == nil })
	must(t, kept.Release())
}

// TestClusterResharding: slots are moved from master to master, back and forth, slowly, while clients
// hold and wait for names in them. No lease is lost, nobody is stuck, and tokens grow.
func TestClusterResharding(t *testing.T) {
	servers := testserver.StartCluster(t, testserver.ClusterOptions{})
	h := faults.Harness{URL: func(string) string { return clusterURL(servers) }}
	faults.Under(t, h, "", failoverTTL, func() {
		for round := range 3 {
			for _, name := range []string{"hot", "warm", "own/2", "steady"} { // as Under calls them
				slot, err := strconv.Atoi(servers.Servers[0].Ask("CLUSTER", "KEYSLOT", name))
				must(t, err)
				from := servers.Master(name)
				to := servers.Servers[0]
				if from == to {
					to = servers.Servers[1+round%2]
				}
				servers.Move(slot, from, to, 100*time.Millisecond)
			}
		}
	})
}

// TestClusterMove: while the slot of a name is being moved, locks wait, and are taken when the move is over. None sees an
// error.
func TestClusterMove(t *testing.T) {
	t.Parallel()
	servers := testserver.StartCluster(t, testserver.ClusterOptions{})
	c := openURL(t, clusterURL(servers))
	const name = "moved"
	slot, err := strconv.Atoi(servers.Servers[0].Ask("CLUSTER", "KEYSLOT", name))
	must(t, err)
	from := servers.Master(name)
	to := servers.Servers[0]
	if from == to {
		to = servers.Servers[1]
	}
	servers.BeginMove(slot, from, to)
	got := make(chan error, 1)
	go func() {
		lease, err := c.RWMutex(name, nil).Read.TryAcquire(t.Context())
		if err == nil {
			err = lease.Release()
		}
		got <- err
	}()
	select {
	case err := <-got:
		t.Fatalf("before the move is over: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	servers.EndMove(slot, from, to)
	if err := <-got; err != nil {
		t.Errorf("a reader: %v", err)
	}
	if lease, err := c.Mutex(name, nil).TryAcquire(t.Context()); err != nil {
		t.Errorf("a mutex: %v", err)
	} else if err := lease.Release(); err != nil {
		t.Errorf("a mutex is released: %v", err)
	}
}

// oddNames have braces, and percent signs, which escape them.
var oddNames = []string{"a{}b", "a}b{c", "{}a{b}", "{", "}", "{}", "}{", "{a}{b}", "x{y", "x}y", "50%", "%7B{", "plain"}

// TestClusterSetNX: in the layout setnx the lock is at the bare name, on the server that has its slot, whatever
// braces it has. A stranger's lock there keeps others out, also while the slot is moved.
func TestClusterSetNX(t *testing.T) {
	t.Parallel()
	servers := testserver.StartCluster(t, testserver.ClusterOptions{})
	raw := clusterURL(servers) + "?hf.layout=setnx"
	a, b := openURL(t, raw), openURL(t, raw)
	var locks []*holdfast.Lock
	for _, name := range oddNames {
		if got := servers.Master(name).Ask("SET", name, "theirs", "NX", "PX", "60000"); got != "OK" {
			t.Fatal(got)
		}
		if _, err := a.Mutex(name, nil).TryAcquire(t.Context()); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("P1: %q beside a stranger's lock: %v", name, err)
		}
		servers.Master(name).Ask("DEL", name)
		locks = append(locks, a.Mutex(name, nil))
	}
	all, err := holdfast.All(locks...).Acquire(t.Context())
	must(t, err)
	slot, err := strconv.Atoi(servers.Servers[0].Ask("CLUSTER", "KEYSLOT", oddNames[0]))
	must(t, err)
	from, to := servers.Master(oddNames[0]), servers.Servers[0]
	if from == to {
		to = servers.Servers[1]
	}
	servers.Move(slot, from, to, 0)
	for _, name := range oddNames {
		if got := servers.Master(name).Ask("SET", name, "theirs", "NX", "PX", "60000"); got != "" {
			t.Errorf("P1: a stranger takes %q beside a hold: %q", name, got)
		}
		if _, err := b.Mutex(name, nil).TryAcquire(t.Context()); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("P1: %q beside a hold: %v", name, err)
		}
	}
	must(t, all.Release())
}

// TestClusterRefuses: what cannot work in a cluster is refused, and the errors say why.
func TestClusterRefuses(t *testing.T) {
	t.Parallel()
	servers := testserver.StartCluster(t, testserver.ClusterOptions{})
	other := servers.Servers[0]
	if servers.Master("holdfast:store") == other {
		other = servers.Servers[1]
	}
	for raw, says := range map[string]string{
		clusterURL(servers) + "/1": "database 0 only",
		"redis://" + other.Addr:    "redis+cluster://",
		"redis+cluster://" + testserver.StartRedis(t, testserver.RedisOptions{}).Addr: "cluster support disabled",
		"redis+cluster://127.0.0.1:1":                   "127.0.0.1:1",
		"redis+sentinel://" + servers.Addrs() + "/main": "sentinel",
	} {
		c, err := holdfast.Open(t.Context(), raw)
		if err == nil {
			c.Close()
			t.Errorf("%s was opened", raw)
		} else if !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v does not say %q", raw, err, says)
		}
	}
}
