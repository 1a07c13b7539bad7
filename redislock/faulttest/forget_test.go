//go:build soak

package faulttest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// forgetful is a store that forgets what it acknowledged.
type forgetful struct {
	before, after string                 // URLs of the store, without parameters
	lag           func()                 // from now on what the store acknowledges is not kept
	forget        func()                 // it forgets that
	has           func(name string) bool // nil: it forgets all names
}

// forgetfuls are the ways in which a store of Redis forgets.
var forgetfuls = map[string]func(*testing.T) forgetful{
	"killed, without persistence": func(t *testing.T) forgetful {
		r := testserver.StartRedis(t, testserver.RedisOptions{})
		return forgetful{before: url(r.Addr), after: url(r.Addr), lag: func() {}, forget: func() { r.Kill(); r.Start() }}
	},
	"killed, appendfsync no": func(t *testing.T) forgetful {
		r := testserver.StartRedis(t, testserver.RedisOptions{Args: []string{"--appendonly", "yes", "--appendfsync", "no"}})
		// What the system has not written when it fails, the server's file lacks.
		return forgetful{before: url(r.Addr), after: url(r.Addr), lag: func() { r.Ask("CONFIG", "SET", "appendonly", "no") }, forget: func() { r.Kill(); r.Start() }}
	},
	"FLUSHALL": func(t *testing.T) forgetful {
		r := testserver.StartRedis(t, testserver.RedisOptions{})
		return forgetful{before: url(r.Addr), after: url(r.Addr), lag: func() {}, forget: func() { r.Ask("FLUSHALL") }}
	},
	"a replica is promoted by hand": func(t *testing.T) forgetful {
		p := startPair(t)
		p.primary.Serves("{0}")
		return forgetful{before: url(p.primary.Addr), after: url(p.replica.Addr), lag: p.link.Cut, forget: func() { p.failOver(t) }}
	},
	"sentinels promote a replica": func(t *testing.T) forgetful {
		d := startDeployment(t)
		primary := d.primary()
		primary.Serves("{0}")
		return forgetful{
			before: sentinelURL(d.sentinels), after: sentinelURL(d.sentinels),
			lag: func() {
				for _, m := range d.members[1:] {
					m.Pause()
				}
				primary.Ask("CLIENT", "KILL", "TYPE", "replica")
			},
			forget: func() {
				primary.Kill()
				for _, m := range d.members[1:] {
					m.Resume()
				}
				d.sentinels.AwaitPrimary(primary.seen)
			},
		}
	},
	"a replica of a cluster takes over": func(t *testing.T) forgetful {
		servers := testserver.StartCluster(t, testserver.ClusterOptions{Replicas: true})
		master := servers.Servers[0]
		for _, r := range servers.Servers[:3] {
			r.AwaitReplicas(1)
		}
		servers.Serves()
		replica, key := servers.ReplicaOf(master), servers.KeyOf(master)
		return forgetful{
			before: clusterURL(servers), after: clusterURL(servers),
			lag:    func() { replica.Pause(); master.Ask("CLIENT", "KILL", "TYPE", "replica") },
			forget: func() { master.Kill(); replica.Resume(); servers.AwaitMaster(key, master) },
			has:    func(name string) bool { return servers.Master("holdfast:{"+name+"}") == master },
		}
	},
}

// TestForgets: a store forgets a hundred holds that it has acknowledged, and another client asks for their names.
// Without the rule of package life nearly all of them get a second holder while the first one trusts its lease. With
// it none does, and the names open when the longest TTL is over.
func TestForgets(t *testing.T) {
	const names, ttl = 100, 10 * time.Second
	for way, start := range forgetfuls {
		rules := []string{"hf.forget=go", "hf.maxttl=" + ttl.String()}
		if way == "FLUSHALL" {
			rules = append(rules, rules[1]+"&hf.layout=setnx")
		}
		for _, rule := range rules {
			t.Run(way+", "+rule, func(t *testing.T) {
				testserver.TakeTurn(t)
				s := start(t)
				first := openURL(t, s.before+"?"+rule)
				second := func() *holdfast.Client { return openURL(t, s.after+"?"+rule) }
				other := (*holdfast.Client)(nil)
				if s.before == s.after {
					other = second() // it knows the store from before
				}
				s.lag()
				leases := map[string]*holdfast.Lease{}
				for i := 0; len(leases) < names; i++ {
					name := fmt.Sprint("name", i)
					if s.has == nil || s.has(name) {
						leases[name] = acquire(t, first, name, &holdfast.Options{TTL: ttl, RenewEvery: -1})
					}
				}
				s.forget()
				began := time.Now()
				if other == nil {
					other = second()
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var mu sync.Mutex
				var work sync.WaitGroup
				two, served, latest := 0, 0, time.Duration(0)
				for name, lease := range leases {
					work.Go(func() {
						for ctx.Err() == nil {
							if _, err := other.Mutex(name, &holdfast.Options{TTL: ttl}).Acquire(ctx); err != nil {
								continue // the fail-over may be under way
							}
							trusted := lease.Err() == nil
							mu.Lock()
							defer mu.Unlock()
							if served++; trusted {
								two++
							}
							latest = max(latest, time.Since(began))
							return
						}
					})
				}
				work.Wait()
				t.Logf("%d of %d names had two holders; all were granted %v after the store forgot", two, names, latest.Round(time.Millisecond))
				switch {
				case served < names:
					t.Errorf("P7: %d of %d names were granted", served, names)
				case rule == "hf.forget=go" && two < names/2:
					t.Errorf("the store is said to forget, and only %d names had two holders", two)
				case rule != "hf.forget=go" && two > 0:
					t.Errorf("P1: %d names had two holders", two)
				}
			})
		}
	}
}
