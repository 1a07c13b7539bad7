//go:build soak

package faulttest

import (
	"testing"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/drivertest/faults"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// forgetfuls are the ways in which a store of Redis fails, in the order of the plot.
var forgetfuls = []faults.Way{
	{Name: "restarted, without persistence", Start: func(t *testing.T) faults.Forgetful {
		r := testserver.StartRedis(t, testserver.RedisOptions{})
		return faults.Forgetful{URL: url(r.Addr), Fail: func() { r.Kill(); r.Start() }, Forgets: true}
	}},
	{Name: "killed, appendfsync everysec", Start: func(t *testing.T) faults.Forgetful {
		r := testserver.StartRedis(t, testserver.RedisOptions{AOF: true, Args: []string{"--appendfsync", "everysec"}})
		return faults.Forgetful{URL: url(r.Addr), Fail: func() { r.Kill(); r.Start() }}
	}},
	{Name: "power lost, appendfsync everysec", Start: func(t *testing.T) faults.Forgetful {
		r := testserver.StartRedis(t, testserver.RedisOptions{AOF: true, Args: []string{"--appendfsync", "everysec"}})
		// What the system has not written when it fails, the server's file lacks.
		lag := func() { r.Ask("CONFIG", "SET", "appendonly", "no") }
		return faults.Forgetful{URL: url(r.Addr), Lag: lag, Fail: func() { r.Kill(); r.Start() }, Forgets: true}
	}},
	{Name: "FLUSHALL", Start: func(t *testing.T) faults.Forgetful {
		r := testserver.StartRedis(t, testserver.RedisOptions{})
		return faults.Forgetful{URL: url(r.Addr), Fail: func() { r.Ask("FLUSHALL") }, Forgets: true}
	}, More: "hf.layout=setnx"},
	{Name: "a lagging replica, promoted by hand", Start: func(t *testing.T) faults.Forgetful {
		p := startPair(t)
		p.primary.Serves("{0}")
		address := chaos.StartProxy(t, p.primary.Addr)
		return faults.Forgetful{URL: url(address.Addr), Lag: p.link.Cut, Fail: func() { p.failOver(t); address.Redirect(p.replica.Addr) }, Forgets: true}
	}},
	{Name: "sentinels, killed", Start: func(t *testing.T) faults.Forgetful { return sentinelsPromote(t, false) }},
	{Name: "sentinels, killed, replicas lag", Start: func(t *testing.T) faults.Forgetful { return sentinelsPromote(t, true) }},
	{Name: "sentinels, cut off, min-replicas 1", Start: func(t *testing.T) faults.Forgetful { return cutOff(t, "1") }},
	{Name: "sentinels, cut off, min-replicas 0", Start: func(t *testing.T) faults.Forgetful { return cutOff(t, "0") }},
	{Name: "cluster, killed, replica lags", Start: func(t *testing.T) faults.Forgetful {
		servers := testserver.StartCluster(t, testserver.ClusterOptions{Replicas: true})
		master := servers.Servers[0]
		for _, r := range servers.Servers[:3] {
			r.AwaitReplicas(1)
		}
		servers.Serves()
		replica, key := servers.ReplicaOf(master), servers.KeyOf(master)
		return faults.Forgetful{
			URL:     clusterURL(servers),
			Lag:     func() { replica.Pause(); master.Ask("CLIENT", "KILL", "TYPE", "replica") },
			Fail:    func() { master.Kill(); replica.Resume(); servers.AwaitMaster(key, master) },
			Forgets: true,
			Has:     func(name string) bool { return servers.Master("holdfast:{"+name+"}") == master },
		}
	}},
}

// sentinelsPromote is a primary that is killed, perhaps when replicas have not had its last holds.
func sentinelsPromote(t *testing.T, lag bool) faults.Forgetful {
	d, primary := startServing(t)
	s := faults.Forgetful{URL: sentinelURL(d.sentinels), Forgets: lag, Fail: func() {
		primary.Kill()
		for _, m := range d.members[1:] {
			m.Resume()
		}
		d.sentinels.AwaitPrimary(primary.seen)
	}}
	if lag {
		s.Lag = func() {
			for _, m := range d.members[1:] {
				m.Pause()
			}
			primary.Ask("CLIENT", "KILL", "TYPE", "replica")
		}
	}
	return s
}

// cutOff is a primary of which neither sentinels nor replicas hear any more. Half of the clients stay with it.
func cutOff(t *testing.T, replicas string) faults.Forgetful {
	d, primary := startServing(t)
	for _, m := range d.members {
		m.Ask("CONFIG", "SET", "min-replicas-to-write", replicas, "min-replicas-max-lag", "3")
	}
	return faults.Forgetful{URL: sentinelURL(d.sentinels), Beside: url(primary.Addr), Splits: replicas == "0", Fail: func() {
		primary.link.HoldRequests()
		primary.link.HoldReplies()
		d.sentinels.AwaitPrimary(primary.seen)
	}}
}

func startServing(t *testing.T) (*deployment, *member) {
	d := startDeployment(t)
	primary := d.primary()
	primary.Serves("{0}")
	return d, primary
}

// TestForgets: a store fails while processes hold names and wait for them.
func TestForgets(t *testing.T) { faults.Forgets(t, forgetfuls) }
