//go:build soak

package faulttest

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/internal/testserver"
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

// fault is one way for a primary to fail.
type fault struct {
	name string
	// begin makes the primary fail.
	begin func(d *deployment, primary *member)
	// heal ends what begin did, when another one is the primary. nil: the server is to be started again.
	heal func(primary, now *member)
	// ordered: the sentinels choose the next primary without regard to what it has acknowledged, and the
	// old one grants until they demote it.
	ordered bool
	// late: before the primary fails its replicas hear of nothing any more.
	late bool
}

// deployment is a primary with two replicas, and three sentinels.
type deployment struct {
	testing.TB
	members   []*member
	sentinels *testserver.Sentinels
	judged    int // how often clients have left a primary that still took writes
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

// open opens a client, again if the servers change meanwhile.
func (d *deployment) open() (c *holdfast.Client) {
	d.Helper()
	until(d, "a client is opened", func() bool {
		var err error
		if c, err = holdfast.Open(d.Context(), sentinelURL(d.sentinels)); err != nil {
			d.Logf("during the fail-over: %v", err)
		}
		return err == nil
	})
	d.Cleanup(func() { c.Close() }) // its server may have failed
	return c
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

// showChanges logs what the sentinels have done.
func (d *deployment) showChanges() {
	d.Helper()
	for i, s := range d.sentinels.Sentinels {
		for line := range strings.Lines(s.Log()) {
			for _, event := range []string{"down ", "+elected-leader", "+promoted-slave", "+switch-master", "-failover", "+convert", "+fix", "+tilt"} {
				if strings.Contains(line, event) {
					d.Logf("sentinel %d: %s", i, strings.TrimSpace(line))
				}
			}
		}
	}
}

// switches returns how often the sentinels have made another server the primary.
func (d *deployment) switches() (n int) {
	for _, s := range d.sentinels.Sentinels {
		n = max(n, strings.Count(s.Log(), "+switch-master ")) // one may have been told of fewer
	}
	return n
}

// TestSentinelCrowd: the primary fails in many ways while 200 clients, each with connections of its own,
// hold and wait. All follow, nobody is stuck, and nobody trusts a lease after its deadline, or one that
// the new primary does not have. Half of the clients want each grant acknowledged by a replica: their
// leases are not lost, do not overlap, and have growing tokens, unless an operator orders the fail-over.
// For the other half a primary that fails before its replicas have heard of its last grants makes two
// believers, of which a guard stops the first.
func TestSentinelCrowd(t *testing.T) {
	testserver.TakeTurn(t)
	d := startDeployment(t)
	groups := startGroups(t, sentinelURL(d.sentinels))
	heal := func(primary, _ *member) { primary.link.Heal() }
	for _, f := range []fault{
		{name: "demoted by order", ordered: true, begin: func(d *deployment, _ *member) { d.sentinels.Failover() }},
		{name: "stopped", begin: func(_ *deployment, p *member) { p.Pause() }, heal: func(p, _ *member) { p.Resume() }},
		{name: "requests arrive, replies do not", begin: func(_ *deployment, p *member) { p.link.HoldReplies() }, heal: heal},
		{name: "replies arrive, requests do not", begin: func(_ *deployment, p *member) { p.link.HoldRequests() }, heal: heal},
		{name: "killed, when replicas lag", late: true, begin: func(_ *deployment, p *member) { p.Kill() }},
	} {
		t.Run(f.name, func(t *testing.T) {
			d.TB = t
			for _, g := range groups {
				g.TB = t
			}
			d.fail(f, groups)
		})
	}
	for _, g := range groups {
		g.TB = t
		g.tell("end")
	}
	d.TB = t
	if t.Failed() {
		d.showChanges()
	}
	if d.judged == 0 {
		t.Error("the clients have left an old primary only when it was a replica")
	}
}

// fail makes the primary fail, and judges what becomes of the clients.
func (d *deployment) fail(f fault, groups []*group) {
	d.Helper()
	before := d.primary()
	if f.late {
		before.link.Hold(chaos.ToClient, "PSYNC") // that is replicas
		lateGrants(groups)
	}
	began, switches := time.Now(), d.switches()
	f.begin(d, before)
	now := d.at(d.sentinels.AwaitPrimary(before.seen).Addr)
	agreed := time.Since(began)
	if f.ordered {
		d.left(before)
	}
	witness := d.open()
	if f.late {
		believers(witness, groups)
		dropLate(groups)
	}
	for _, g := range groups {
		r := g.tell("served")
		lost := g.settled(witness)
		g.tell("served")
		// On a busy machine they may choose one, and then another, while the first grants: as if somebody had ordered
		// the second fail-over. No replica acknowledges what the first grants then, so the others are judged as ever.
		overlaps, shortLost := g.judge(f.ordered || !g.replicated() && d.switches() > switches+1)
		d.Logf("%s: all were served twice within %v of the sentinels' agreement, which took %v; of 100 leases %d were lost, and of short ones %d; %d overlaps",
			g.name, r.Took.Round(time.Millisecond), agreed.Round(time.Millisecond), lost, shortLost, overlaps)
	}
	switch {
	case f.ordered:
		before.follow(now) // the sentinels would do it a little later
	case f.heal == nil:
		before.restart(now)
	default:
		f.heal(before, now)
		d.left(before)
		before.follow(now)
	}
}

// left waits until the clients have left the old primary. They must have left of themselves: the sentinels
// demote it after about ten seconds, and disconnect its clients then.
func (d *deployment) left(before *member) {
	d.Helper()
	until(d, "the clients have left the old primary", func() bool { return !before.hasClients() })
	if strings.HasPrefix(before.Ask("ROLE"), "master ") {
		d.judged++
	}
}
