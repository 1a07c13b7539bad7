package testserver

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// ClusterOptions configure a Redis Cluster of three masters.
type ClusterOptions struct {
	Replicas bool     // one for each master
	AOF      bool     // as in RedisOptions
	Args     []string // more arguments of each server
}

// Cluster is a Redis Cluster.
type Cluster struct {
	Servers []*Redis // the three masters at the beginning, and then their replicas in the same order
	t       testing.TB
}

// Slots is how many hash slots a cluster has.
const Slots = 16384

// masters is how many masters there are.
const masters = 3

// StartCluster starts a cluster, which ends with the test. A replica takes over about two seconds after
// its master has fallen silent. It needs the package redis-server: see [Need].
func StartCluster(t testing.TB, o ClusterOptions) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	n := masters
	if o.Replicas {
		n = 2 * masters
	}
	var bus []string // the ports by which the servers reach each other
	for i := range n {
		bus = append(bus, portOf(FreeAddrs(t, 1)[0]))
		args := append([]string{
			"--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-port", bus[i],
			"--repl-diskless-sync-delay", "0", "--cluster-replica-validity-factor", "0",
		}, o.Args...)
		c.Servers = append(c.Servers, StartRedis(t, RedisOptions{AOF: o.AOF, Args: args}))
		c.must(c.Servers[i].Ask("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1)))
	}
	for i, r := range c.Servers[:masters] {
		from, to := Slots*i/masters, Slots*(i+1)/masters-1
		c.must(r.Ask("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(from), strconv.Itoa(to)))
	}
	for i, r := range c.Servers[1:] {
		c.must(c.Servers[0].Ask("CLUSTER", "MEET", "127.0.0.1", portOf(r.Addr), bus[i+1]))
	}
	c.until("all know all", func(r *Redis) bool {
		return strings.Count(r.Ask("CLUSTER", "NODES"), " connected") == n
	})
	for i, r := range c.Servers[masters:] {
		id := c.Servers[i].Ask("CLUSTER", "MYID")
		await(c.t, "a replica follows", func() bool { return r.Ask("CLUSTER", "REPLICATE", id) == "OK" })
		r.awaitInStep()
	}
	c.until("the cluster serves", func(r *Redis) bool {
		nodes := r.Ask("CLUSTER", "NODES")
		return r.clusterServes() && strings.Count(nodes, " slave ")+strings.Count(nodes, "myself,slave") == n-masters
	})
	c.Serves()
	return c
}

// Serves is that of each master: see Redis.Serves.
func (c *Cluster) Serves() {
	for i := range masters {
		for n := 0; ; n++ {
			tag := "{" + strconv.Itoa(n) + "}"
			if slot, _ := strconv.Atoi(c.Servers[0].Ask("CLUSTER", "KEYSLOT", tag)); slot*masters/Slots == i {
				c.Servers[i].Serves(tag)
				break
			}
		}
	}
}

func (r *Redis) clusterServes() bool {
	return strings.Contains(r.Ask("CLUSTER", "INFO"), "cluster_state:ok")
}

func (c *Cluster) must(reply string) {
	c.t.Helper()
	if reply != "OK" {
		c.t.Fatalf("a server of the cluster says %q", reply)
	}
}

// Addrs returns the addresses of all servers, separated by commas, as a store URL has them.
func (c *Cluster) Addrs() string { return addrs(c.Servers, func(r *Redis) string { return r.Addr }) }

// Master returns the server that has a key's slot now, as the first that answers says.
func (c *Cluster) Master(key string) *Redis {
	c.t.Helper()
	for _, asked := range c.Servers {
		if m := c.masterBy(asked, key); m != nil {
			return m
		}
	}
	return nil
}

// masterBy returns the server that has a key's slot, as one says, or nil if it does not answer, or knows none.
func (c *Cluster) masterBy(asked *Redis, key string) *Redis {
	if asked.paused {
		return nil
	}
	reply := asked.Ask("EXISTS", key)
	if reply == "0" || reply == "1" || strings.HasPrefix(reply, "ASK ") { // ASK: the slot is being moved away
		return asked
	}
	for _, r := range c.Servers {
		if strings.HasPrefix(reply, "MOVED ") && strings.HasSuffix(reply, " "+r.Addr) {
			return r
		}
	}
	return nil
}

// KeyOf returns a key that the server has, as the servers say.
func (c *Cluster) KeyOf(r *Redis) string {
	c.t.Helper()
	for i := range 1000 {
		if key := "key" + strconv.Itoa(i); c.Master(key) == r {
			return key
		}
	}
	c.t.Fatalf("%s has no slots", r.Addr)
	return ""
}

// AwaitMaster waits until all servers that answer say that another has a key's slot than before, and that
// the cluster serves.
func (c *Cluster) AwaitMaster(key string, before *Redis) (now *Redis) {
	c.t.Helper()
	await(c.t, "another server has the slot", func() bool {
		now = c.Master(key)
		if now == nil || now == before {
			return false
		}
		for _, r := range c.Servers {
			if r.paused || r.Ask("PING") != "PONG" {
				continue
			}
			if c.masterBy(r, key) != now || !r.clusterServes() {
				return false
			}
		}
		return true
	})
	return now
}

// ReplicaOf returns the replica that a master had at the beginning.
func (c *Cluster) ReplicaOf(r *Redis) *Redis { return c.Servers[slices.Index(c.Servers, r)+masters] }

// Move moves a slot with its keys to another master, as resharding does, and takes so long for it.
func (c *Cluster) Move(slot int, from, to *Redis, takes time.Duration) {
	c.t.Helper()
	c.BeginMove(slot, from, to)
	time.Sleep(takes)
	c.EndMove(slot, from, to)
}

// BeginMove begins to move a slot to another master: keys that are not at the one are looked for at the
// other.
func (c *Cluster) BeginMove(slot int, from, to *Redis) {
	c.t.Helper()
	text := strconv.Itoa(slot)
	c.must(to.Ask("CLUSTER", "SETSLOT", text, "IMPORTING", from.Ask("CLUSTER", "MYID")))
	c.must(from.Ask("CLUSTER", "SETSLOT", text, "MIGRATING", to.Ask("CLUSTER", "MYID")))
}

// EndMove moves the keys of a slot, and then the slot.
func (c *Cluster) EndMove(slot int, from, to *Redis) {
	c.t.Helper()
	text, id := strconv.Itoa(slot), to.Ask("CLUSTER", "MYID")
	for {
		keys := strings.Fields(from.Ask("CLUSTER", "GETKEYSINSLOT", text, "10"))
		if len(keys) == 0 {
			break
		}
		reply := from.Ask(append([]string{"MIGRATE", "127.0.0.1", portOf(to.Addr), "", "0", "5000", "KEYS"}, keys...)...)
		if reply != "OK" && reply != "NOKEY" {
			c.t.Fatalf("migrating slot %d: %s", slot, reply)
		}
	}
	c.must(to.Ask("CLUSTER", "SETSLOT", text, "NODE", id))
	c.must(from.Ask("CLUSTER", "SETSLOT", text, "NODE", id))
	for _, r := range c.Servers {
		if r != from && r != to {
			_ = r.Ask("CLUSTER", "SETSLOT", text, "NODE", id) // those that are no masters hear of it
		}
	}
}

// until waits until something is so at each server.
func (c *Cluster) until(what string, is func(*Redis) bool) {
	c.t.Helper()
	for _, r := range c.Servers {
		await(c.t, what+": "+r.Addr, func() bool { return is(r) })
	}
}

// Restart kills all servers at a time and starts them again, and returns when the cluster serves.
func (c *Cluster) Restart() {
	c.t.Helper()
	for _, r := range c.Servers {
		r.Kill()
	}
	for _, r := range c.Servers {
		r.Start()
	}
	c.until("the cluster serves again", (*Redis).clusterServes)
}
