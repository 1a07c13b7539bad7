package zklock

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

func TestMain(m *testing.M) {
	if testserver.Soak {
		goleak.VerifyTestMain(m)
	}
	testserver.Main(m)
}

// must ends the test at an error.
var must = testserver.Must

// within is how long a test waits for what should come soon.
const within = time.Minute

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

// start returns a server with sessions of up to two minutes: in the gate the one that its tests share,
// empty.
func start(t *testing.T) *testserver.ZooKeeper {
	t.Helper()
	return testserver.Shared(t, func(t testing.TB) *testserver.ZooKeeper {
		return testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{TickTime: quick, MaxSession: 2 * time.Minute})
	}, func(_ testing.TB, server *testserver.ZooKeeper) {
		r := fixture{server}.raw(t)
		for _, name := range r.children("/") {
			if name != "zookeeper" {
				r.remove("/" + name)
			}
		}
	})
}

// open opens a client that the test closes.
func (x fixture) open(t *testing.T) *client { return x.openWith(t, Config{}) }

func (x fixture) openWith(t *testing.T, config Config) *client {
	t.Helper()
	config.Servers = strings.Split(x.Addrs(), ",")
	c := dial(t, config)
	t.Cleanup(func() { c.Close() })
	return c
}

type fixture struct{ *testserver.ZooKeeper }

// raw is a session in which a test makes nodes by hand, as other programs do.
type raw struct {
	*zk.Session
	t *testing.T
}

func (x fixture) raw(t *testing.T) raw {
	t.Helper()
	s, err := zk.Open(t.Context(), zk.Config{Servers: strings.Split(x.Addrs(), ","), Timeout: 30 * time.Second})
	must(t, err)
	t.Cleanup(func() { s.Close(context.Background()) })
	return raw{s, t}
}

// must does one operation.
func (r raw) must(op zk.Op) zk.Reply {
	r.t.Helper()
	replies, err := r.Do(r.t.Context(), op)
	if err == nil {
		err = replies[0].Err
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return replies[0]
}

// container makes a directory and those above it.
func (r raw) container(path string) {
	r.t.Helper()
	for i := 1; i <= len(path); i++ {
		if i == len(path) || path[i] == '/' {
			if replies, err := r.Do(r.t.Context(), zk.CreateContainer(path[:i], nil, nil)); err != nil ||
				replies[0].Err != nil && !errors.Is(replies[0].Err, zk.NodeExists) {
				r.t.Fatal(err, replies)
			}
		}
	}
}

func (r raw) children(path string) []string {
	r.t.Helper()
	replies, err := r.Do(r.t.Context(), zk.Children(path, nil))
	if err != nil || replies[0].Err != nil && !errors.Is(replies[0].Err, zk.NoNode) {
		r.t.Fatal(err, replies)
	}
	return replies[0].Children
}

// remove removes a node and those below it.
func (r raw) remove(path string) {
	r.t.Helper()
	for _, name := range r.children(path) {
		r.remove(path + "/" + name)
	}
	if replies, err := r.Do(r.t.Context(), zk.Delete(path, -1)); err != nil || replies[0].Err != nil && !errors.Is(replies[0].Err, zk.NoNode) {
		r.t.Fatal(err, replies)
	}
}

var owners atomic.Int64

// request is a request of a new owner.
func request(name string) driver.Request {
	return driver.Request{Name: name, Owner: fmt.Sprintf("owner %d", owners.Add(1)), TTL: 20 * time.Second, Note: "a note"}
}

func take(t *testing.T, c *client, r driver.Request) driver.Grant {
	t.Helper()
	g, err := c.Try(t.Context(), r)
	if err != nil {
		t.Fatalf("taking %q: %v", r.Name, err)
	}
	return g
}

func release(t *testing.T, c *client, g driver.Grant) {
	t.Helper()
	if err := c.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
		t.Fatalf("releasing %q: %v", g.Name, err)
	}
}

// queue takes a place behind others.
func queue(t *testing.T, c *client, r driver.Request) {
	t.Helper()
	if _, err := c.Enqueue(t.Context(), r); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("queueing for %q: %v", r.Name, err)
	}
}

// await waits at a place until it is a hold.
func await(ctx context.Context, c *client, r driver.Request) (driver.Grant, error) {
	for {
		g, err := c.Wait(ctx, r)
		if errors.Is(err, driver.ErrHeld) {
			g, err = c.Enqueue(ctx, r)
		}
		if !errors.Is(err, driver.ErrHeld) {
			return g, err
		}
	}
}

// refused asserts that a name is held by others.
func refused(t *testing.T, c *client, r driver.Request) {
	t.Helper()
	if _, err := c.Try(t.Context(), r); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("P1: a Try of a held name: %v", err)
	}
}

// number returns a number of a server's answer to a command.
func number(t *testing.T, m *testserver.ZooKeeperMember, command, pattern string) int {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(m.Ask(command))
	if found == nil {
		t.Fatalf("%s says %q", command, m.Ask(command))
	}
	n, err := strconv.Atoi(found[1])
	must(t, err)
	return n
}

// watches returns how many watches the server has.
func watches(t *testing.T, m *testserver.ZooKeeperMember) int {
	t.Helper()
	return number(t, m, "wchs", `Total watches:(\d+)`)
}

// received returns how many packets the server has received.
func received(t *testing.T, m *testserver.ZooKeeperMember) int {
	t.Helper()
	return number(t, m, "mntr", `zk_packets_received\t(\d+)`)
}

// TestWhatJavaSees: the nodes have Curator's names, parents and data.
func TestWhatJavaSees(t *testing.T) {
	x := fixture{start(t)}
	c, java := x.openWith(t, Config{Prefix: "app"}), x.raw(t)
	guid := guidOf("me")
	ask := func(change func(*driver.Request)) (driver.Request, driver.Grant) {
		r := request("orders/42")
		r.Owner = "me"
		change(&r)
		return r, take(t, c, r)
	}
	for stem, change := range map[string]func(*driver.Request){
		stemLock:  func(*driver.Request) {},
		stemWrite: func(r *driver.Request) { r.RW = true },
		stemRead:  func(r *driver.Request) { r.Mode = driver.Shared },
	} {
		_, g := ask(change)
		kids := java.children("/app/orders/42")
		if len(kids) != 1 || !regexp.MustCompile(`^`+guid+stem+`\d{10}$`).MatchString(kids[0]) {
			t.Fatalf("the children are %q", kids)
		}
		node := java.must(zk.GetData("/app/orders/42/"+kids[0], nil))
		if string(node.Data) != "a note" || int64(g.Token) != node.Stat.Czxid || node.Stat.EphemeralOwner == 0 {
			t.Errorf("node %q has the data %q, czxid %d, owner %d; the token is %d", kids[0], node.Data, node.Stat.Czxid, node.Stat.EphemeralOwner, g.Token)
		}
		release(t, c, g)
		if kids := java.children("/app/orders/42"); len(kids) != 0 {
			t.Errorf("after the release the children are %q", kids)
		}
	}
	_, g := ask(func(r *driver.Request) { r.Mode, r.Slots, r.Permits = driver.Slot, 3, 2 })
	leases, locks := java.children("/app/orders/42/leases"), java.children("/app/orders/42/locks")
	if len(leases) != 2 || len(locks) != 0 || !strings.HasPrefix(leases[0], guid+stemLease) {
		t.Errorf("a semaphore has the leases %q and the locks %q", leases, locks)
	}
	release(t, c, g)
	if leases := java.children("/app/orders/42/leases"); len(leases) != 0 {
		t.Errorf("after the release the leases are %q", leases)
	}
}

// TestOwnNodeMadeByOthers: somebody has made the directory of the sessions' nodes before any client was opened. Two
// clients that are opened then agree on the store's name.
func TestOwnNodeMadeByOthers(t *testing.T) {
	x := fixture{start(t)}
	java := x.raw(t)
	java.container("/made")
	java.must(zk.Create("/made/.holdfast", nil, nil, 0))
	a, b := x.openWith(t, Config{Prefix: "made"}), x.openWith(t, Config{Prefix: "made"})
	if a.Caps().Store != b.Caps().Store {
		t.Errorf("one store has the names %q and %q", a.Caps().Store, b.Caps().Store)
	}
}

// TestKinds: a name that another program uses as another kind of lock is refused, and Java's leases count.
func TestKinds(t *testing.T) {
	x := fixture{start(t)}
	c, java := x.open(t), x.raw(t)
	slot := request("kinds")
	slot.Mode, slot.Slots, slot.Permits = driver.Slot, 2, 1
	java.container("/kinds")
	node := java.must(zk.Create("/kinds/"+someone+stemRead, nil, nil, zk.Ephemeral|zk.Sequential)).Path
	if _, err := c.Try(t.Context(), slot); !errors.Is(err, driver.ErrMismatch) {
		t.Errorf("P10: a semaphore beside a reader: %v", err)
	}
	java.must(zk.Delete(node, zk.AnyVersion))
	java.container("/kinds/" + leasesDir)
	java.must(zk.Create("/kinds/leases/"+someone+stemLease, nil, nil, zk.Ephemeral|zk.Sequential)) // says nothing of how many there are
	if _, err := c.Try(t.Context(), request("kinds")); !errors.Is(err, driver.ErrMismatch) {
		t.Errorf("P10: a mutex beside a lease: %v", err)
	}
	both := slot
	both.Owner, both.Permits = "another", 2
	refused(t, c, both)
	release(t, c, take(t, c, slot))
}

func granted(t *testing.T, c *client, r driver.Request) driver.Grant {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	g, err := await(ctx, c, r)
	if err != nil {
		t.Fatalf("waiting for %q: %v", r.Name, err)
	}
	return g
}
