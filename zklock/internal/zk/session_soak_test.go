//go:build soak

package zk

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sent reports whether operations were written.
func sent(c *calls) bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.sent != 0
}

func outcome(t testing.TB, c *calls) ([]Reply, error) {
	t.Helper()
	select {
	case <-c.done:
		return c.replies, c.err
	case <-time.After(bound):
	}
	t.Fatal("operations have no outcome")
	return nil, nil
}

// look is do for reads, and asks again when the connection is lost.
func look(t testing.TB, s *Session, ops ...Op) []Reply {
	t.Helper()
	for {
		replies, err := s.Do(within(t), ops...)
		if err == nil {
			for i, r := range replies {
				if r.Err != nil {
					t.Fatalf("operation %d: %v", i, r.Err)
				}
			}
			return replies
		}
		if !errors.Is(err, ErrConnectionLoss) {
			t.Fatal(err)
		}
	}
}

// watch is a watch, and what it was told.
type watch struct {
	*Watch
	told chan Event
}

func newWatch() watch {
	told := make(chan Event, 10)
	return watch{NewWatch(func(e Event) {
		if len(told) < cap(told) { // it may be armed for many paths
			told <- e
		}
	}), told}
}

func (w watch) fires(t testing.TB) Event {
	select {
	case e := <-w.told:
		return e
	case <-time.After(bound):
		t.Fatal("the watch did not fire")
		return 0
	}
}

func (w watch) silent(t testing.TB) {
	if len(w.told) > 0 {
		t.Fatal("the watch fired")
	}
}

func TestWatches(t *testing.T) {
	t.Parallel()
	z := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{TickTime: 200 * time.Millisecond})
	c := Config{Servers: []string{z.Members[0].Addr}, Timeout: 4 * time.Second}
	s, other := open(t, c), open(t, c)
	do(t, other, Create("/a", nil, nil, 0), Create("/a/x", nil, nil, 0), Create("/b", nil, nil, 0))

	data, children, absent, again := newWatch(), newWatch(), newWatch(), newWatch()
	do(t, s, GetData("/a/x", data.Watch), Exists("/a/x", again.Watch), Children("/a", children.Watch))
	if r, err := s.Do(within(t), Exists("/n", absent.Watch), GetData("/n", data.Watch), Children("/n", children.Watch)); err != nil || r[0].Err != NoNode {
		t.Fatal(r, err)
	}
	do(t, other, Create("/a/y", nil, nil, 0))
	children.fires(t)
	data.silent(t)
	do(t, other, SetData("/a/x", []byte("new"), AnyVersion))
	data.fires(t)
	again.fires(t)
	children.silent(t) // not armed again
	do(t, other, Create("/n", nil, nil, 0))
	absent.fires(t)
	do(t, s, Exists("/a/x", data.Watch), Children("/a/x", data.Watch))
	do(t, other, Delete("/a/x", AnyVersion))
	for range 2 {
		if e := data.fires(t); e != NodeDeleted {
			t.Errorf("event %d", e)
		}
	}

	// One who gives up takes nothing from another; the server forgets with the last one.
	one, two := newWatch(), newWatch()
	do(t, s, Exists("/b", one.Watch), Exists("/b", two.Watch))
	s.Unwatch(one.Watch)
	do(t, s, Exists("/", nil))
	if got := watched(z, "/b"); got != 1 {
		t.Errorf("the server has %d watches, want 1", got)
	}
	do(t, other, SetData("/b", nil, AnyVersion))
	two.fires(t)
	one.silent(t)
	do(t, s, Children("/b", two.Watch))
	s.Unwatch(two.Watch)
	last := newWatch() // armed by who has gone meanwhile
	calls := s.send(Exists("/b", last.Watch))
	s.Unwatch(last.Watch)
	outcome(t, calls)
	do(t, s, Exists("/", nil)) // after the removals
	if got := watched(z, "/b"); got != 0 || len(s.watches) != 0 {
		t.Errorf("P9: the server has %d watches, the session %v, want none", got, s.watches)
	}
	final := newWatch()
	do(t, s, Exists("/b", final.Watch))
	s.Close(within(t))
	if e := final.fires(t); e != SessionOver {
		t.Errorf("event %d", e)
	}
}

// watched returns how many watches a server has of a path.
func watched(z *testserver.ZooKeeper, path string) int {
	n, of := 0, ""
	for line := range strings.Lines(z.Members[0].Ask("wchp")) {
		if line = strings.TrimRight(line, "\n"); strings.HasPrefix(line, "\t") {
			if of == path {
				n++
			}
		} else {
			of = line
		}
	}
	return n
}

func TestWatchesAreSetAgain(t *testing.T) {
	t.Parallel()
	z := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{TickTime: time.Second})
	proxy := chaos.StartProxy(t, z.Members[0].Addr)
	s := open(t, Config{Servers: []string{proxy.Addr}})
	other := open(t, Config{Servers: []string{z.Members[0].Addr}})
	do(t, other, Create("/a", nil, nil, 0), Create("/b", nil, nil, 0), Create("/c", nil, nil, 0))
	do(t, s, Create("/mine", nil, nil, Ephemeral))

	const many = 5000 // more than one request to set them again
	arm := func(op func(string, *Watch) Op, path string) watch {
		w := newWatch()
		if _, err := s.Do(within(t), op(path, w.Watch)); err != nil {
			t.Fatal(err)
		}
		return w
	}
	changed := []watch{arm(GetData, "/a"), arm(Children, "/a"), arm(Exists, "/n"), arm(GetData, "/c")}
	same := []watch{arm(GetData, "/b"), arm(Children, "/b"), arm(Exists, "/m")}
	unchanged := newWatch()
	for i := range many {
		s.send(Exists(fmt.Sprintf("/a-rather-long-name-of-a-node-that-there-is-not/%d", i), unchanged.Watch))
	}
	do(t, s, Exists("/", nil))

	proxy.Cut()
	do(t, other, SetData("/a", nil, AnyVersion), Create("/a/x", nil, nil, 0), Create("/n", nil, nil, 0), Delete("/c", AnyVersion))
	proxy.Heal()
	for _, w := range changed {
		w.fires(t)
	}
	look(t, s, Exists("/mine", nil)) // a blip keeps the session
	for _, w := range same {
		w.silent(t)
	}
	do(t, other, SetData("/b", nil, AnyVersion), Create("/b/x", nil, nil, 0), Create("/m", nil, nil, 0))
	for _, w := range same {
		w.fires(t)
	}
	unchanged.silent(t)
	if s.Err() != nil || len(s.watches) != many {
		t.Errorf("%d watches, want %d; %v", len(s.watches), many, s.Err())
	}
}

func TestAuth(t *testing.T) {
	t.Parallel()
	z := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{TickTime: time.Second})
	proxy := chaos.StartProxy(t, z.Members[0].Addr)
	s := open(t, Config{Servers: []string{proxy.Addr}, Auth: []Auth{{"digest", "u:p"}}})
	other := open(t, Config{Servers: []string{z.Members[0].Addr}, Auth: []Auth{{"digest", "u:q"}}})
	do(t, s, Create("/mine", nil, CreatorACL(), 0))
	if r, err := other.Do(within(t), GetData("/mine", nil), SetData("/mine", nil, AnyVersion), Create("/mine/x", nil, nil, 0)); err != nil ||
		r[0].Err != NoAuth || r[1].Err != NoAuth || r[2].Err != NoAuth || r[0].Committed || !r[1].Committed {
		t.Errorf("%+v, %v", r, err)
	}
	proxy.Cut()
	proxy.Heal()
	look(t, s, GetData("/mine", nil)) // with the identity that was told anew

	lost := make(chan error, 1)
	bad := open(t, Config{Servers: []string{z.Members[0].Addr}, Auth: []Auth{{"none-such", "x"}}, Lost: func(err error) { lost <- err }})
	if err := <-lost; err != AuthFailed || bad.Err() != AuthFailed {
		t.Errorf("a scheme that the server does not know: %v", err)
	}
}
