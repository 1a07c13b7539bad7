package zklock

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// TestSessionNodeDeleted: somebody deletes a session's own node, and the directory with it. The session lives,
// and its holds are renewed: the node is made again.
func TestSessionNodeDeleted(t *testing.T) {
	x := fixture{start(t)}
	proxy := chaos.StartProxy(t, x.Members[0].Addr)
	c, other, java := dial(t, Config{Servers: []string{proxy.Addr}}), x.open(t), x.raw(t)
	defer c.Close()
	r := request("own/x")
	r.TTL = 3 * time.Second
	g := take(t, c, r)
	node := c.known(r.Name, r.Owner).session.node
	gone := func() {
		t.Helper()
		java.must(zk.Delete(node, zk.AnyVersion))
		for _, sibling := range java.children(c.layout.sessions()) {
			java.must(zk.Delete(c.layout.sessions()+"/"+sibling, zk.AnyVersion))
		}
		java.must(zk.Delete(c.layout.sessions(), zk.AnyVersion))
	}
	made := func(by string) {
		t.Helper()
		if stat := java.must(zk.Exists(node, nil)).Stat; stat.EphemeralOwner != c.known(r.Name, r.Owner).session.zk.ID() {
			t.Errorf("%s has made the node for the session %x", by, stat.EphemeralOwner)
		}
	}
	since := g.Since
	for n := range 5 { // for longer than the TTL
		gone()
		if n > 0 {
			time.Sleep(r.TTL / 3)
		}
		renewal := c.Renew(t.Context(), []driver.Grant{g})[0]
		if renewal.Err != nil || renewal.Since < since || n > 0 && renewal.Since == since {
			t.Fatalf("P2: renewing a hold of a session without its node: %+v, it was renewed at %v", renewal, since)
		}
		since = renewal.Since
		made("a renewal")
		refused(t, other, request(r.Name))
	}
	gone()
	info, err := c.Inspect(t.Context(), r.Name)
	if err != nil || len(info.Holders) != 1 || info.Holders[0].Expires <= 0 || info.Holders[0].Expires > 2*r.TTL {
		t.Errorf("P1: inspecting without the node: %+v, %v", info, err)
	}
	made("Inspect")

	// What is gone with its session is not made again.
	s := c.known(r.Name, r.Owner).session
	proxy.Cut()
	eventually(t, "the session's node is gone", func() bool {
		replies, err := java.Do(t.Context(), zk.Exists(node, nil))
		return err == nil && errors.Is(replies[0].Err, zk.NoNode)
	})
	proxy.Heal()
	eventually(t, "the client knows that the session has ended", func() bool { return s.zk.Err() != nil })
	if err := c.Renew(t.Context(), []driver.Grant{g})[0].Err; !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("P2: renewing a hold of a session that is over: %v", err)
	}
	if replies, err := java.Do(t.Context(), zk.Exists(node, nil)); err != nil || !errors.Is(replies[0].Err, zk.NoNode) {
		t.Errorf("the node of a session that is over: %v, %v", replies, err)
	}
	release(t, other, take(t, other, request(r.Name)))
}

// TestLateness: how late a dead holder's name opens is told by the server's tick, also if sessions may be shorter
// than that; by the usual tick if the server does not tell.
func TestLateness(t *testing.T) {
	for name, c := range map[string]struct {
		o    testserver.ZooKeeperOptions
		want time.Duration
	}{
		"told":                  {testserver.ZooKeeperOptions{TickTime: time.Second}, 2 * time.Second},
		"sessions are shorter":  {testserver.ZooKeeperOptions{TickTime: time.Second, MinSession: 400 * time.Millisecond}, 2 * time.Second},
		"not told":              {testserver.ZooKeeperOptions{TickTime: quick, FourLetters: "srvr"}, 3 * time.Second},
		"not told, and longer":  {testserver.ZooKeeperOptions{TickTime: 3 * time.Second, FourLetters: "srvr"}, 7 * time.Second},
		"not even who leads":    {testserver.ZooKeeperOptions{TickTime: quick, FourLetters: "none"}, 3 * time.Second},
		"told by an old server": {testserver.ZooKeeperOptions{TickTime: time.Second, Old: true}, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := fixture{testserver.StartZooKeeper(t, c.o)}.open(t)
			if got := d.Caps().Guarantees.Lateness; got != c.want {
				t.Errorf("P5: a dead holder's name opens %v late at most, want %v", got, c.want)
			}
		})
	}
}
