package zk

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// bound is how long anything may take before a test says that it hangs.
const bound = 60 * time.Second

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	t.Cleanup(cancel)
	return ctx
}

// open opens a session that ends with the test.
func open(t testing.TB, c Config) *Session {
	t.Helper()
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	s, err := Open(within(t), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Abandon)
	return s
}

// do returns the replies of operations that must all be done.
func do(t testing.TB, s *Session, ops ...Op) []Reply {
	t.Helper()
	replies, err := s.Do(within(t), ops...)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range replies {
		if r.Err != nil {
			t.Fatalf("operation %d: %v", i, r.Err)
		}
	}
	return replies
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

// eachVersion runs a test on both servers.
func eachVersion(t *testing.T, f func(t *testing.T, o testserver.ZooKeeperOptions)) {
	t.Run("3.8", func(t *testing.T) {
		t.Parallel()
		f(t, testserver.ZooKeeperOptions{Old: true, TickTime: 200 * time.Millisecond})
	})
	t.Run("3.9", func(t *testing.T) { t.Parallel(); f(t, testserver.ZooKeeperOptions{TickTime: 200 * time.Millisecond}) })
}

func TestOperations(t *testing.T) {
	eachVersion(t, func(t *testing.T, o testserver.ZooKeeperOptions) {
		z := testserver.StartZooKeeper(t, o)
		c := Config{Servers: []string{z.Members[0].Addr}, Timeout: 2 * time.Second}
		s := open(t, c)
		if s.ID() == 0 || s.Timeout() != 2*time.Second || s.Server() != z.Members[0].Addr || s.Suspended() != nil || s.Err() != nil {
			t.Fatalf("session %x, timeout %v, server %s, %v, %v", s.ID(), s.Timeout(), s.Server(), s.Suspended(), s.Err())
		}

		before := s.config.Clock.Now()
		r := do(t, s,
			CreateContainer("/c", nil, nil),
			Create("/c/n-", []byte("data"), nil, Ephemeral|Sequential),
			Create("/c/n-", nil, nil, Ephemeral|Sequential),
			Children("/c", nil),
			GetData("/c/n-0000000000", nil),
			Exists("/c/n-0000000001", nil),
			SetData("/c/n-0000000001", []byte("more"), 0),
		)
		if r[0].Path != "/c" || r[0].Stat.Czxid != r[0].Zxid || !r[0].Committed {
			t.Errorf("container: %+v", r[0])
		}
		if r[1].Path != "/c/n-0000000000" || r[1].Zxid <= r[0].Zxid || r[2].Path != "/c/n-0000000001" {
			t.Errorf("created: %+v, %+v", r[1], r[2])
		}
		slices.Sort(r[3].Children)
		if !slices.Equal(r[3].Children, []string{"n-0000000000", "n-0000000001"}) || r[3].Stat.NumChildren != 2 || r[3].Committed {
			t.Errorf("children: %+v", r[3])
		}
		if string(r[4].Data) != "data" || r[4].Stat.Czxid != r[1].Zxid || r[4].Stat.EphemeralOwner != s.ID() {
			t.Errorf("data: %+v; the token of %+v", r[4], r[1])
		}
		if r[5].Stat.Czxid != r[2].Zxid || r[6].Stat.Version != 1 || r[6].Stat.DataLength != 4 {
			t.Errorf("stat: %+v, %+v", r[5], r[6])
		}
		for i := range r {
			if r[i].Sent < before || r[i].Sent > s.config.Clock.Now() {
				t.Errorf("sent at %v, not between %v and now", r[i].Sent, before)
			}
		}

		r, err := s.Do(within(t),
			Create("/none/n", nil, nil, 0), Create("/c", nil, nil, 0), Delete("/c", AnyVersion), Delete("/none", AnyVersion),
			SetData("/c/n-0000000001", nil, 7), Create("/c/n-0000000001/x", nil, nil, 0), Create("no path", nil, nil, 0),
			Create("/acl", nil, CreatorACL(), 0), GetData("/none", nil), Children("/none", nil), Exists("/none", nil),
		)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []Code{NoNode, NodeExists, NotEmpty, NoNode, BadVersion, NoChildrenForEphemerals, BadArguments, InvalidACL, NoNode, NoNode, NoNode} {
			if r[i].Err != want {
				t.Errorf("operation %d: %v, want %v", i, r[i].Err, want)
			}
			if r[i].Committed != (i < 8 && want != BadArguments) {
				t.Errorf("operation %d: committed %v", i, r[i].Committed)
			}
		}

		// All of a transaction, or nothing.
		r = do(t, s, Multi(Check("/c", 0), Create("/c/m", nil, nil, Ephemeral), SetData("/c/m", []byte("x"), 0),
			CreateContainer("/d", nil, nil), Delete("/c/n-0000000001", AnyVersion)))
		if r[0].Results[1].Path != "/c/m" || r[0].Results[2].Stat.Version != 1 || r[0].Results[3].Path != "/d" || !r[0].Committed {
			t.Errorf("multi: %+v", r[0])
		}
		r, err = s.Do(within(t), Multi(Create("/c/a", nil, nil, 0), Check("/none", AnyVersion), Create("/c/b", nil, nil, 0)), Children("/c", nil))
		if err != nil || r[0].Err != NoNode || !r[0].Committed {
			t.Fatalf("multi: %+v, %v", r[0], err)
		}
		for i, want := range []Code{RuntimeInconsistency, NoNode, RuntimeInconsistency} {
			if r[0].Results[i].Err != want {
				t.Errorf("multi, operation %d: %v, want %v", i, r[0].Results[i].Err, want)
			}
		}
		if slices.Contains(r[1].Children, "a") || slices.Contains(r[1].Children, "b") {
			t.Errorf("children after a transaction that failed: %v", r[1].Children)
		}

		// Another session sees the nodes until the first one is closed.
		other := open(t, c)
		do(t, other, Exists("/c/m", nil))
		if err := s.Close(within(t)); err != nil {
			t.Fatal(err)
		}
		if r, err := other.Do(within(t), Exists("/c/m", nil)); err != nil || r[0].Err != NoNode {
			t.Errorf("a node of a session that is closed: %+v, %v", r, err)
		}
		if _, err := s.Do(within(t), Exists("/c", nil)); !errors.Is(err, ErrClosed) || !errors.Is(s.Err(), ErrClosed) {
			t.Errorf("a session that is closed: %v, %v", err, s.Err())
		}
		if err := s.Close(within(t)); err != nil {
			t.Errorf("closed again: %v", err)
		}

		info, err := Probe(within(t), c, z.Members[0].Addr)
		if err != nil || info.Role != Standalone || info.Zxid == 0 || info.Nodes == 0 || !strings.HasPrefix(info.Version, "3.") {
			t.Errorf("probe: %+v, %v", info, err)
		}
		text, err := FourLetters(within(t), c, z.Members[0].Addr, "conf")
		if err != nil || !strings.Contains(text, "minSessionTimeout=400") {
			t.Errorf("conf: %v, %s", err, text)
		}
	})
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
