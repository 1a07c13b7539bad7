//go:build soak

package faulttest

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/drivertest/faults"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// member is a server of a deployment that can be cut off: clients, sentinels and the other servers know
// the address of its link only.
type member struct {
	*testserver.Redis // the server itself
	link              *chaos.Proxy
	seen              *testserver.Redis // the server as others see it
}

// startMember starts a server with a link.
func startMember(t testing.TB) *member {
	t.Helper()
	r := testserver.StartRedis(t, testserver.RedisOptions{Args: []string{"--repl-diskless-sync-delay", "0", "--repl-timeout", "60"}})
	seen := *r
	m := &member{r, chaos.StartProxy(t, r.Addr), &seen}
	seen.Addr = m.link.Addr
	m.announce()
	return m
}

// announce makes the server tell the others the address of its link.
func (m *member) announce() {
	m.Ask("CONFIG", "SET", "replica-announce-ip", "127.0.0.1", "replica-announce-port", port(m.link.Addr))
}

// restart starts a server that was killed, as a replica.
func (m *member) restart(of *member) {
	m.Start()
	m.announce()
	m.follow(of)
}

// follow makes the server a replica of the other, if the sentinels have not done it yet.
func (m *member) follow(of *member) {
	m.Ask("REPLICAOF", "127.0.0.1", port(of.link.Addr))
}

// isReplica reports whether the server follows the other.
func (m *member) isReplica(of *member) bool {
	got := m.Ask("INFO", "replication")
	return strings.Contains(got, "role:slave") && strings.Contains(got, "master_port:"+port(of.link.Addr)+"\r") && strings.Contains(got, "master_link_status:up")
}

// hasClients reports whether others than sentinels, replicas and this question are connected.
func (m *member) hasClients() bool {
	for line := range strings.Lines(m.Ask("CLIENT", "LIST", "TYPE", "NORMAL")) {
		if !strings.Contains(line, "name=sentinel-") && !strings.Contains(line, "cmd=client|list") && strings.TrimSpace(line) != "" {
			return true
		}
	}
	return m.Ask("PUBSUB", "CHANNELS", "holdfast:*") != ""
}

// deployment is a primary with two replicas, and three sentinels.
type deployment struct {
	testing.TB
	members   []*member
	sentinels *testserver.Sentinels
}

func startDeployment(t testing.TB) *deployment {
	t.Helper()
	d := &deployment{TB: t}
	var seen []*testserver.Redis
	for i := range 3 {
		m := startMember(t)
		if i > 0 {
			m.follow(d.members[0])
		}
		d.members, seen = append(d.members, m), append(seen, m.seen)
	}
	d.members[0].AwaitReplicas(2)
	// Busy servers must not pass for dead ones.
	d.sentinels = testserver.WatchBySentinels(t, seen[0], seen[1:], "sentinel down-after-milliseconds "+testserver.PrimaryName+" 1500")
	return d
}

// at returns the member whose link has the address.
func (d *deployment) at(address string) *member {
	for _, m := range d.members {
		if m.link.Addr == address {
			return m
		}
	}
	return nil
}

// primary returns the present primary, when both others follow it, and the sentinels know that.
func (d *deployment) primary() (now *member) {
	d.Helper()
	until(d, "both replicas follow the primary", func() bool {
		r := d.sentinels.Primary()
		if r == nil {
			return false
		}
		for _, s := range d.sentinels.Sentinels {
			master, replicas := s.Ask("SENTINEL", "MASTER", testserver.PrimaryName), s.Ask("SENTINEL", "REPLICAS", testserver.PrimaryName)
			if !strings.Contains(master, " flags master ") || strings.Count(replicas, " flags slave ") != len(d.members)-1 {
				return false
			}
		}
		now = d.at(r.Addr)
		for _, m := range d.members {
			if m != now && !m.isReplica(now) {
				return false
			}
		}
		return true
	})
	return now
}

// TestSentinelFailover: the primary fails in many ways while clients hold and wait, whose grants replicas
// acknowledge. All follow, nobody is stuck, holds are neither lost nor given twice, and tokens grow. By order the
// sentinels promote any replica, so there both must have acknowledged.
func TestSentinelFailover(t *testing.T) {
	testserver.TakeTurn(t)
	d := startDeployment(t)
	heal := func(primary, _ *member) { primary.link.Heal() }
	for _, f := range []struct {
		name, replicas string
		begin          func(primary *member)
		heal           func(primary, now *member) // when another one is the primary
	}{
		{"demoted by order", "2", func(*member) { d.sentinels.Failover() }, func(_, _ *member) {}},
		{"stopped", "1", func(p *member) { p.Pause() }, func(p, _ *member) { p.Resume() }},
		{"requests arrive, replies do not", "1", func(p *member) { p.link.HoldReplies() }, heal},
		{"replies arrive, requests do not", "1", func(p *member) { p.link.HoldRequests() }, heal},
		{"killed", "1", func(p *member) { p.Kill() }, func(p, now *member) { p.restart(now) }},
	} {
		t.Run(f.name, func(t *testing.T) {
			d.TB = t
			before := d.primary()
			h := faults.Harness{URL: func(string) string { return sentinelURL(d.sentinels) + "?hf.forget=go&hf.replicas=" + f.replicas }}
			faults.Under(t, h, "", failoverTTL, func() {
				f.begin(before)
				now := d.at(d.sentinels.AwaitPrimary(before.seen).Addr)
				f.heal(before, now)
				until(t, "the clients have left the old primary", func() bool { return !before.hasClients() })
				before.follow(now) // the sentinels would do it a little later
			})
		})
	}
	d.TB = t
}

// failoverTTL is longer than a fail-over takes.
const failoverTTL = 20 * time.Second
