//go:build soak

package zk

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

func fires(t testing.TB, w *Watch) {
	t.Helper()
	select {
	case <-w.C():
	case <-time.After(bound):
		t.Fatal("the watch did not fire")
	}
}

func silent(t testing.TB, w *Watch) {
	t.Helper()
	select {
	case <-w.C():
		t.Fatal("the watch fired")
	default:
	}
}

func TestTimeoutIsTheServers(t *testing.T) {
	t.Parallel()
	z := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{TickTime: 100 * time.Millisecond})
	for _, asked := range []time.Duration{time.Millisecond, time.Second, time.Hour} {
		s := open(t, Config{Servers: []string{z.Members[0].Addr}, Timeout: asked})
		if want := min(max(asked, 200*time.Millisecond), 2*time.Second); s.Timeout() != want {
			t.Errorf("asked %v, got %v", asked, s.Timeout())
		}
	}
	for _, asked := range []time.Duration{0, 1000, 1 << 31 * time.Millisecond, -time.Second} {
		if _, err := Open(within(t), Config{Servers: []string{z.Members[0].Addr}, Timeout: asked}); err == nil {
			t.Errorf("a timeout of %v", asked)
		}
	}
}

func TestWatches(t *testing.T) {
	eachVersion(t, func(t *testing.T, o testserver.ZooKeeperOptions) {
		z := testserver.StartZooKeeper(t, o)
		c := Config{Servers: []string{z.Members[0].Addr}, Timeout: 4 * time.Second}
		s, other := open(t, c), open(t, c)
		do(t, other, Create("/a", nil, nil, 0), Create("/a/x", nil, nil, 0), Create("/b", nil, nil, 0))

		data, children, absent, again := NewWatch(), NewWatch(), NewWatch(), NewWatch()
		do(t, s, GetData("/a/x", data), Exists("/a/x", again), Children("/a", children))
		if r, err := s.Do(within(t), Exists("/n", absent), GetData("/n", data), Children("/n", children)); err != nil || r[0].Err != NoNode {
			t.Fatal(r, err)
		}
		do(t, other, Create("/a/y", nil, nil, 0))
		fires(t, children)
		silent(t, data)
		do(t, other, SetData("/a/x", []byte("new"), AnyVersion))
		fires(t, data)
		fires(t, again)
		silent(t, children) // not armed again
		do(t, other, Create("/n", nil, nil, 0))
		fires(t, absent)

		events := make(chan string, 10)
		called := NewWatchFunc(func(path string, e Event) { events <- fmt.Sprint(path, " ", e) })
		do(t, s, Exists("/a/x", called), Children("/a/x", called))
		do(t, other, Delete("/a/x", AnyVersion))
		for range 2 {
			if e := <-events; e != "/a/x 2" {
				t.Errorf("event %s", e)
			}
		}

		// One who gives up takes nothing from another; the server forgets with the last one.
		one, two := NewWatch(), NewWatch()
		do(t, s, Exists("/b", one), Exists("/b", two))
		s.Unwatch(one)
		do(t, s, Exists("/", nil))
		if got := watched(z, "/b"); got != 1 {
			t.Errorf("the server has %d watches, want 1", got)
		}
		do(t, other, SetData("/b", nil, AnyVersion))
		fires(t, two)
		silent(t, one)
		do(t, s, Exists("/b", one), Children("/b", two))
		s.Unwatch(one)
		s.Unwatch(two)
		do(t, s, Exists("/", nil))
		if got := watched(z, "/b"); got != 0 {
			t.Errorf("the server has %d watches, want none", got)
		}
		// Armed by who has gone meanwhile.
		calls := s.Send(Exists("/b", one))
		s.Unwatch(one)
		calls.Wait(within(t))
		do(t, s, Exists("/", nil)) // after the removal that followed the answer
		if got := watched(z, "/b"); got != 0 {
			t.Errorf("the server has %d watches of one who has gone, want none", got)
		}
		if len(s.watches) != 0 {
			t.Errorf("the session has watches: %v", s.watches)
		}

		do(t, s, Exists("/b", one), Children("/b", called))
		s.Close(within(t))
		fires(t, one)
		if e := <-events; e != "/b -1" {
			t.Errorf("event %s", e)
		}
	})
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
	eachVersion(t, func(t *testing.T, o testserver.ZooKeeperOptions) {
		o.TickTime = time.Second
		z := testserver.StartZooKeeper(t, o)
		proxy := chaos.StartProxy(t, z.Members[0].Addr)
		s := open(t, Config{Servers: []string{proxy.Addr}})
		other := open(t, Config{Servers: []string{z.Members[0].Addr}})
		do(t, other, Create("/a", nil, nil, 0), Create("/b", nil, nil, 0), Create("/c", nil, nil, 0))
		do(t, s, Create("/mine", nil, nil, Ephemeral))

		const many = 5000 // more than one request to set them again
		var ws []*Watch
		watch := func(op func(string, *Watch) Op, path string) *Watch {
			w := NewWatch()
			if _, err := s.Do(within(t), op(path, w)); err != nil {
				t.Fatal(err)
			}
			return w
		}
		data, children, absent, gone := watch(GetData, "/a"), watch(Children, "/a"), watch(Exists, "/n"), watch(GetData, "/c")
		same := []*Watch{watch(GetData, "/b"), watch(Children, "/b"), watch(Exists, "/m")}
		for i := range many {
			w := NewWatch()
			s.Send(Exists(fmt.Sprintf("/a-rather-long-name-of-a-node-that-there-is-not/%d", i), w))
			ws = append(ws, w)
		}
		do(t, s, Exists("/", nil))

		proxy.Cut()
		do(t, other, SetData("/a", nil, AnyVersion), Create("/a/x", nil, nil, 0), Create("/n", nil, nil, 0), Delete("/c", AnyVersion))
		proxy.Heal()
		for _, w := range []*Watch{data, children, absent, gone} {
			fires(t, w)
		}
		look(t, s, Exists("/mine", nil)) // a blip keeps the session
		for _, w := range same {
			silent(t, w)
		}
		do(t, other, SetData("/b", nil, AnyVersion), Create("/b/x", nil, nil, 0), Create("/m", nil, nil, 0))
		for _, w := range same {
			fires(t, w)
		}
		if s.Err() != nil {
			t.Fatal(s.Err())
		}
		if want := many; len(s.watches) != want {
			t.Errorf("%d watches, want %d", len(s.watches), want)
		}
		for _, w := range ws {
			silent(t, w)
		}
	})
}

func TestExpiry(t *testing.T) {
	eachVersion(t, func(t *testing.T, o testserver.ZooKeeperOptions) {
		z := testserver.StartZooKeeper(t, o)
		proxy := chaos.StartProxy(t, z.Members[0].Addr)
		lost := make(chan error, 2)
		s := open(t, Config{Servers: []string{proxy.Addr}, Timeout: 500 * time.Millisecond, Lost: func(err error) { lost <- err }})
		other := open(t, Config{Servers: []string{z.Members[0].Addr}})
		do(t, s, Create("/mine", nil, nil, Ephemeral))
		gone, w := NewWatch(), NewWatch()
		do(t, other, Exists("/mine", gone))
		do(t, s, Exists("/mine", w))
		proxy.Cut()
		fires(t, gone)
		waiting := s.Send(Exists("/mine", nil)) // for a connection
		proxy.Heal()
		if err := <-lost; !errors.Is(err, ErrExpired) || !errors.Is(s.Err(), ErrExpired) {
			t.Errorf("lost: %v, %v", err, s.Err())
		}
		fires(t, w)
		if r, err := waiting.Wait(within(t)); !errors.Is(err, ErrExpired) || !errors.Is(r[0].Err, ErrExpired) {
			t.Errorf("what waited: %v", err)
		}
		if _, err := s.Do(within(t), Exists("/mine", nil)); !errors.Is(err, ErrExpired) {
			t.Errorf("later: %v", err)
		}
		if err := s.Close(within(t)); err != nil {
			t.Error(err)
		}
		select {
		case err := <-lost:
			t.Errorf("told again: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	})
}

// An idle session lives by its pings alone.
func TestPings(t *testing.T) {
	t.Parallel()
	z := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{TickTime: 100 * time.Millisecond})
	s := open(t, Config{Servers: []string{z.Members[0].Addr}, Timeout: time.Second})
	first := connection(s)
	other := open(t, Config{Servers: []string{z.Members[0].Addr}, Timeout: 2 * time.Second})
	do(t, s, Create("/mine", nil, nil, Ephemeral))
	w := NewWatch()
	do(t, other, Exists("/mine", w))
	time.Sleep(3 * time.Second)
	silent(t, w)
	if connection(s) != first {
		t.Error("the connection was lost")
	}
}

// connection returns the session's connection.
func connection(s *Session) *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn
}

// Many goroutines send at once; answers go to whom they are for.
func TestPipelining(t *testing.T) {
	z := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{TickTime: time.Second})
	s := open(t, Config{Servers: []string{z.Members[0].Addr}})
	do(t, s, Create("/p", nil, nil, 0))
	var wg sync.WaitGroup
	var events atomic.Int64
	for g := range 32 {
		wg.Go(func() {
			for i := range 50 {
				path := fmt.Sprintf("/p/%d-%d", g, i)
				w := NewWatchFunc(func(string, Event) { events.Add(1) })
				r, err := s.Do(within(t), Create(path, []byte(path), nil, Ephemeral), GetData(path, w), SetData(path, nil, 0), Delete(path, 1), Exists(path, nil))
				if err != nil || string(r[1].Data) != path || r[2].Stat.Version != 1 || r[3].Err != nil || r[4].Err != NoNode {
					t.Errorf("%s: %+v, %v", path, r, err)
				}
			}
		})
	}
	wg.Wait()
	if got := events.Load(); got != 32*50 {
		t.Errorf("%d events", got)
	}
	if len(s.watches) != 0 {
		t.Errorf("watches are left: %v", s.watches)
	}
}

func TestXidsWrap(t *testing.T) {
	t.Parallel()
	z := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{TickTime: time.Second})
	s := open(t, Config{Servers: []string{z.Members[0].Addr}})
	s.mu.Lock()
	s.conn.xid = 1<<31 - 3
	s.mu.Unlock()
	do(t, s, Exists("/", nil), Exists("/", nil), Exists("/", nil), Exists("/", nil))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn.xid != 2 {
		t.Errorf("the last id is %d, want 2", s.conn.xid)
	}
}

func TestAuth(t *testing.T) {
	eachVersion(t, func(t *testing.T, o testserver.ZooKeeperOptions) {
		o.TickTime = time.Second
		z := testserver.StartZooKeeper(t, o)
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
	})
}

func TestTooLarge(t *testing.T) {
	z := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{TickTime: time.Second})
	s := open(t, Config{Servers: []string{z.Members[0].Addr}, Timeout: 20 * time.Second})
	do(t, s, Create("/l", nil, nil, 0), Create("/l/data", make([]byte, 1<<20-100), nil, 0))
	if r := do(t, s, GetData("/l/data", nil)); len(r[0].Data) != 1<<20-100 {
		t.Errorf("%d bytes", len(r[0].Data))
	}
	w := NewWatch()
	r, err := s.Do(within(t), Exists("/l", w), Create("/l/x", make([]byte, 1<<20), nil, 0))
	if !errors.Is(err, ErrTooLarge) || !errors.Is(r[0].Err, ErrTooLarge) || len(s.watches) != 0 {
		t.Errorf("a request that is too large: %v", err)
	}
	// 4 MiB of names.
	var all []*Calls
	name := strings.Repeat("n", 1000)
	for i := range 4300 {
		all = append(all, s.Send(Create(fmt.Sprintf("/l/%s%d", name, i), nil, nil, 0)))
	}
	for _, calls := range all {
		if _, err := calls.Wait(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	r, err = s.Do(within(t), Children("/l", nil), Exists("/l", nil))
	if err != nil || !errors.Is(r[0].Err, ErrTooLarge) || r[1].Stat.NumChildren != 4301 {
		t.Errorf("an answer that is too large: %v, %v, then %+v", err, r[0].Err, r[1])
	}
}
