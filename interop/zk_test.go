//go:build soak

package interop

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// session is how long sessions of ZooKeeper are that do not end in a test.
const session = 4 * time.Second

// curator is a server, and the programs that use it.
type curator struct {
	inBoth
	server *testserver.ZooKeeper
}

// TestCurator: Holdfast and Curator have one lock, whatever its kind, in both directions. Containers are
// reaped all the time, which both must bear.
func TestCurator(t *testing.T) {
	server := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{
		TickTime: 200 * time.Millisecond, Containers: 100 * time.Millisecond,
		JVM: []string{"-Dzookeeper.nio.numWorkerThreads=0"}, // fewer threads for a request to pass through
	})
	c := (&curator{inBoth: inBoth{java: startCurator(t), holdfast: startHoldfast(t)}}).on(t, server)
	c.rows(server)
	// Most services of Curator then use another server than Holdfast, which uses the leader.
	c.rows(testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{
		Old: true, Members: 3, TickTime: 200 * time.Millisecond, Containers: 100 * time.Millisecond,
	}))
	// Two programs of Holdfast and two services of Curator under load. No test runs beside them: a hand-over mostly waits
	// until processes wake up. Not 3:2: Curator takes permits one by one, and services that have one each would wait for ever.
	t.Run("crowd", func(t *testing.T) {
		times := testserver.Long(150, 2500)
		c.on(t, server).crowds([]*program{c.java, c.java, c.holdfast, startHoldfast(t)},
			[]string{"mutex", "single", "write", "multi"}, times, []string{"semaphore:3:1", "semaphore:4:2"}, times)
	})
}

// on returns c for another test or server.
func (c *curator) on(t *testing.T, server *testserver.ZooKeeper) *curator {
	return &curator{inBoth{T: t, servers: server.Addrs(), root: "/", java: c.java, holdfast: c.holdfast, lasts: session}, server}
}

// rows tests each row of the table in zklock's documentation.
func (c *curator) rows(server *testserver.ZooKeeper) {
	c.Run(fmt.Sprint("rows/", len(server.Members)), func(t *testing.T) {
		for name, test := range map[string]func(*curator, string){
			"exclusion": func(c *curator, path string) {
				c.exclusions([]string{"mutex", "write", "single", "semaphore:1:1"}, path)
			}, "order": (*curator).order, "readers": (*curator).readers,
			"downgrade": (*curator).downgrade, "permits": func(c *curator, path string) { c.permits(path) },
			"multi": func(c *curator, path string) { c.multi(path) }, "revocation": (*curator).revocation, "leaders": (*curator).leaders,
			"operator": (*curator).operator, "names": (*curator).names,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(c.on(t, server), "/rows/"+name)
			})
		}
	})
}

// order: waiters of both languages get the lock in the order in which they came.
func (c *curator) order(path string) {
	eye, _ := c.both()
	var queue []*service
	for i := range 4 {
		java, holdfast := c.both()
		queue = append(queue, java, holdfast)
		if i%2 == 1 {
			slices.Reverse(queue[len(queue)-2:])
		}
	}
	for i, s := range queue {
		s.tell("lock h mutex %s -1", path)
		c.queued(eye, path, i+1)
	}
	for i, s := range queue {
		s.expect("held")
		for _, later := range queue[i+1:] {
			later.silent()
		}
		s.do("ok", "end h")
	}
}

// readers: readers of both languages share, and a writer keeps later readers out.
func (c *curator) readers(path string) {
	eye, _ := c.both()
	third, fourth := c.both()
	c.directions(func(a, b *service) {
		a.do("held", "lock h read %s 0", path)
		b.do("held", "lock h read %s 0", path)
		third.do("busy", "lock h write %s 0", path)
		fourth.do("busy", "lock h write %s 0", path)
		c.queued(eye, path, 2)
		third.tell("lock h write %s -1", path)
		c.queued(eye, path, 3)
		fourth.do("busy", "lock h read %s 50", path)
		a.do("ok", "end h")
		fourth.do("busy", "lock h read %s 50", path)
		third.silent()
		b.do("ok", "end h")
		third.expect("held")
		fourth.tell("lock h read %s -1", path)
		c.queued(eye, path, 2)
		third.do("ok", "end h")
		fourth.expect("held")
		fourth.do("ok", "end h")
		third, fourth = fourth, third
	})
}

// downgrade: a writer that becomes a reader lets in the readers behind it, and no writer before it ends.
func (c *curator) downgrade(path string) {
	eye, other := c.both()
	c.directions(func(a, b *service) {
		a.do("held", "lock h write %s 0", path)
		b.tell("lock h read %s -1", path)
		c.queued(eye, path, 2)
		other.tell("lock h write %s -1", path)
		c.queued(eye, path, 3)
		b.silent()
		a.do("ok", "downgrade h")
		b.expect("held")
		b.do("ok", "end h")
		other.silent()
		b.do("busy", "lock h write %s 50", path)
		a.do("ok", "end h")
		other.expect("held")
		other.do("ok", "end h")

		a.do("held", "lock h write %s 0", path)
		other.tell("lock h write %s -1", path)
		c.queued(eye, path, 2)
		a.do("ok", "downgrade h")
		b.do("busy", "lock h read %s 50", path) // behind the writer
		other.silent()
		a.do("ok", "end h")
		other.expect("held")
		other.do("ok", "end h")
	})
}

// revocation: the holder is asked for its lock.
func (c *curator) revocation(path string) {
	c.directions(func(a, b *service) {
		a.do("held", "lock h revocable %s 0", path)
		b.tell("lock h mutex %s -1", path)
		c.queued(a, path, 2)
		asks := b.program.open(c, c.servers, session)
		asks.do("ok", "revoke %s", path)
		a.event("revoked " + path)
		a.do("ok", "end h")
		b.expect("held")
		b.do("ok", "end h")
	})
}

// leaders: candidates of both languages lead one after the other, in their order, and each sees all.
func (c *curator) leaders(path string) {
	for _, kind := range []string{"latch", "selector"} {
		path := path + "/" + kind
		c.directions(func(a, b *service) {
			seen := func(want string) {
				c.Helper()
				for _, s := range []*service{a, b} {
					for end := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
						got := s.ask("leader %s %s", kind, path)
						if got == want {
							break
						}
						if time.Now().After(end) {
							c.Fatalf("%v sees %q, not %q", s, got, want)
						}
					}
				}
			}
			a.do("ok", "%s one %s A", kind, path)
			a.event("leader one")
			b.do("ok", "%s two %s B", kind, path)
			seen("A of A,B")
			a.do("ok", "end one")
			a.event("deposed one")
			b.event("leader two")
			a.do("ok", "%s three %s C", kind, path)
			seen("B of B,C")
			b.do("ok", "end two")
			b.event("deposed two")
			a.event("leader three")
			a.do("ok", "end three")
			a.event("deposed three")
		})
	}
}

// operator: each sees who holds the other's locks.
func (c *curator) operator(path string) {
	java, holdfast := c.both()
	java.do("held", "lock h mutex %s 0", path)
	holdfast.tell("lock h mutex %s -1", path)
	c.queued(java, path, 2)
	eye := c.holdfast.open(c, c.servers, session)
	eye.do("2", "participants %s", path)
	if note := eye.ask("data %s", path); note != java.ask("data %s", path) || note == "" {
		c.Errorf("Holdfast shows the note %q of Curator's hold", note)
	}
	java.do("ok", "end h")
	holdfast.expect("held")
	if note := java.ask("data %s", path); note != eye.ask("data %s", path) || note == "" {
		c.Errorf("Curator reads %q of Holdfast's node", note)
	}
	holdfast.do("ok", "end h")
}

// names: what Curator refuses as a path, Holdfast refuses as a name, and takes what Curator takes. Beyond U+FFFF
// Curator refuses all that is tried here.
func (c *curator) names(path string) {
	java, _ := c.both()
	locks, err := holdfast.Open(c.Context(), "zk://"+c.servers+path)
	if err != nil {
		c.Fatal(err)
	}
	defer locks.Close()
	var names []string
	for _, r := range []rune{
		0x01, 0x08, 0x0e, 0x1f, 0x21, 0x7e, 0x7f, 0x80, 0x9f, 0xa1, 0xad, 0x300, 0x200b, 0x202e, 0xd7ff, 0xe000, 0xf8ff, 0xf900, 0xfeff, 0xffef,
		0xfff0, 0xfffd, 0xffff, 0x10000, 0x1f512, 0x10ffff,
	} {
		names = append(names, "x"+string(r)+"x", string(r))
	}
	names = append(names, "...", ".a", "a.", "%2F", "{a}", "*", "é", "日本", "a:b", "x/.", "./x", "..", "x/../y", "x//y", "x/")
	for _, name := range names {
		java.tell("lock h mutex %s/%s 0", path, name)
		takes := java.answer() == "held"
		if takes {
			java.do("ok", "end h")
		}
		lease, err := locks.Mutex(name, nil).TryAcquire(c.Context())
		if (err == nil) != takes {
			c.Errorf("P10: Curator takes the name %q: %v; Holdfast: %v", name, takes, err)
		}
		if err == nil {
			_ = lease.Release() // a loss would be told by what follows
		}
	}
}
