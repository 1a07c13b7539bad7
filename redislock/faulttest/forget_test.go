//go:build soak

package faulttest

import (
	"testing"

	"github.com/holdfastlock/holdfast/internal/test/forgettest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// forgetfuls are the ways in which a store of Redis forgets.
var forgetfuls = map[string]func(*testing.T) forgettest.Store{
	"killed, without persistence": func(t *testing.T) forgettest.Store {
		r := testserver.StartRedis(t, testserver.RedisOptions{})
		return forgettest.Store{Before: url(r.Addr), After: url(r.Addr), Lag: func() {}, Forget: func() { r.Kill(); r.Start() }}
	},
	"killed, appendfsync no": func(t *testing.T) forgettest.Store {
		r := testserver.StartRedis(t, testserver.RedisOptions{Args: []string{"--appendonly", "yes", "--appendfsync", "no"}})
		// What the system has not written when it fails, the server's file lacks.
		return forgettest.Store{Before: url(r.Addr), After: url(r.Addr), Lag: func() { r.Ask("CONFIG", "SET", "appendonly", "no") }, Forget: func() { r.Kill(); r.Start() }}
	},
	"FLUSHALL": func(t *testing.T) forgettest.Store {
		r := testserver.StartRedis(t, testserver.RedisOptions{})
		return forgettest.Store{Before: url(r.Addr), After: url(r.Addr), Lag: func() {}, Forget: func() { r.Ask("FLUSHALL") }}
	},
	"a replica is promoted by hand": func(t *testing.T) forgettest.Store {
		p := startPair(t)
		p.primary.Serves("{0}")
		return forgettest.Store{Before: url(p.primary.Addr), After: url(p.replica.Addr), Lag: p.link.Cut, Forget: func() { p.failOver(t) }}
	},
	"sentinels promote a replica": func(t *testing.T) forgettest.Store {
		d := startDeployment(t)
		primary := d.primary()
		primary.Serves("{0}")
		return forgettest.Store{
			Before: sentinelURL(d.sentinels), After: sentinelURL(d.sentinels),
			Lag: func() {
				for _, m := range d.members[1:] {
					m.Pause()
				}
				primary.Ask("CLIENT", "KILL", "TYPE", "replica")
			},
			Forget: func() {
				primary.Kill()
				for _, m := range d.members[1:] {
					m.Resume()
				}
				d.sentinels.AwaitPrimary(primary.seen)
			},
		}
	},
	"a replica of a cluster takes over": func(t *testing.T) forgettest.Store {
		servers := testserver.StartCluster(t, testserver.ClusterOptions{Replicas: true})
		master := servers.Servers[0]
		for _, r := range servers.Servers[:3] {
			r.AwaitReplicas(1)
		}
		servers.Serves()
		replica, key := servers.ReplicaOf(master), servers.KeyOf(master)
		return forgettest.Store{
			Before: clusterURL(servers), After: clusterURL(servers),
			Lag:    func() { replica.Pause(); master.Ask("CLIENT", "KILL", "TYPE", "replica") },
			Forget: func() { master.Kill(); replica.Resume(); servers.AwaitMaster(key, master) },
			Has:    func(name string) bool { return servers.Master("holdfast:{"+name+"}") == master },
		}
	},
}

func TestForgets(t *testing.T) {
	for way, start := range forgetfuls {
		var more []string
		if way == "FLUSHALL" {
			more = append(more, "hf.layout=setnx")
		}
		forgettest.Run(t, way, start, more...)
	}
}
