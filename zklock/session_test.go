//go:build soak

package zklock

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// TestSessionNodeDeleted: somebody deletes a session's own node, and the directory with it. The session lives,
// and its holds are renewed: the node is made again.
func TestSessionNodeDeleted(t *testing.T) {
	t.Parallel()
	x := fixture{start(t)}
	c, other, java := x.open(t), x.open(t), x.raw(t)
	r := request("own/x")
	r.TTL = 3 * time.Second
	g := take(t, c, r)
	node := c.known(r.Name, r.Owner).keeper.node
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
		if stat := java.must(zk.Exists(node, nil)).Stat; stat.EphemeralOwner != c.known(r.Name, r.Owner).keeper.session.ID() {
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
}

// TestShortenedSession: a server is started again with shorter sessions, and takes back a session that was longer.
// It ends earlier now than its holds were told, so its client gives it up.
func TestShortenedSession(t *testing.T) {
	t.Parallel() // it waits most of the time
	x := fixture{start(t)}
	proxy := chaos.StartProxy(t, x.Members[0].Addr)
	c := dial(t, Config{Servers: []string{proxy.Addr}})
	defer c.Close()
	r := request("shortened")
	g := take(t, c, r)
	x.Members[0].Kill()
	file := filepath.Join(x.Members[0].Dir, "zoo.cfg")
	config, err := os.ReadFile(file)
	must(t, err)
	shorter := regexp.MustCompile(`maxSessionTimeout=\d+`).ReplaceAll(config, []byte("maxSessionTimeout=1000"))
	must(t, os.WriteFile(file, shorter, 0o600))
	x.Members[0].Start()
	var renewal driver.Renewal
	eventually(t, "an answer to a renewal", func() bool {
		renewal = c.Renew(t.Context(), []driver.Grant{g})[0]
		return renewal.Err == nil || driver.Gone(renewal.Err)
	})
	until := g.Since.Add(g.Valid)
	if renewal.Err == nil {
		until = renewal.Since.Add(renewal.Valid)
	}
	select {
	case loss := <-c.Losses():
		if len(loss.Owners) != 1 || loss.Owners[0] != r.Owner || !errors.Is(loss.Err, driver.ErrNotHeld) {
			t.Errorf("P2: told was %+v", loss)
		}
		until = 0
	default:
	}
	proxy.Cut()
	other := x.open(t)
	next := request(r.Name)
	next.TTL = time.Second
	next.Owner = "the next"
	queue(t, other, next)
	release(t, other, granted(t, other, next))
	if beside := until.Sub(driver.HostClock.Now()); beside > 0 {
		t.Errorf("P1: another has the name while its holder may trust its lease for %v more", beside)
	}
	proxy.Heal()
	eventually(t, "a hold as long as the sessions are now", func() bool {
		g, err = c.Try(t.Context(), request(r.Name))
		return err == nil
	})
	if g.Valid != time.Second {
		t.Errorf("P1: sessions last for 1 s, and a hold of %v is valid for %v", g.TTL, g.Valid)
	}
	release(t, c, g)
}

// TestTerms: what sessions cannot keep is refused; a longer TTL gets what the server grants at most. No renewal writes
// to the nodes of holds, which would wake the waiters of Java.
func TestTerms(t *testing.T) {
	t.Parallel()
	// So long that nothing lapses on a busy machine.
	x := fixture{testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{TickTime: quick, MaxSession: time.Minute})}
	c, java := x.open(t), x.raw(t)
	asked := func(ttl, delay, minimum time.Duration) driver.Request {
		r := request("terms/" + ttl.String() + delay.String())
		r.TTL, r.LockDelay, r.MinHold = ttl, delay, minimum
		return r
	}
	for what, r := range map[string]driver.Request{
		"a TTL below the bounds":    asked(2*quick-time.Millisecond, 0, 0),
		"a lock-delay without room": asked(50*time.Second, 11*time.Second, 0),
		"a minimum hold":            asked(time.Minute, 0, time.Second),
	} {
		if _, err := c.Try(t.Context(), r); !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("P10: Try of %s: %v", what, err)
		}
	}
	for _, one := range []struct{ ttl, delay, valid time.Duration }{
		{19700 * time.Millisecond, 0, 19700 * time.Millisecond},
		{20 * time.Second, 10 * time.Second, 20 * time.Second},
		{2 * time.Minute, 0, time.Minute},
	} {
		g := take(t, c, asked(one.ttl, one.delay, 0))
		for range 2 {
			if r := c.Renew(t.Context(), []driver.Grant{g})[0]; r.Err != nil || r.Valid != one.valid || g.Valid != one.valid {
				t.Errorf("P1: a hold of %v is valid for %v, and renewed as %+v; want %v", one.ttl, g.Valid, r, one.valid)
			}
		}
		node := java.must(zk.GetData(c.known(g.Name, g.Owner).nodes[0], nil))
		if node.Stat.Version != 0 || node.Stat.Mzxid != node.Stat.Czxid {
			t.Errorf("renewals have changed the node of %q: %+v", g.Name, node.Stat)
		}
		release(t, c, g)
	}
}
