package zk

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// must ends the test at an error.
var must = testserver.Must

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
	must(t, err)
	t.Cleanup(s.Abandon)
	return s
}

// do returns the replies of operations that must all be done.
func do(t testing.TB, s *Session, ops ...Op) []Reply {
	t.Helper()
	replies, err := s.Do(within(t), ops...)
	must(t, err)
	for i, r := range replies {
		if r.Err != nil {
			t.Fatalf("operation %d: %v", i, r.Err)
		}
	}
	return replies
}

func TestOperations(t *testing.T) {
	z := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{TickTime: 200 * time.Millisecond})
	c := Config{Servers: []string{z.Members[0].Addr}, Timeout: 2 * time.Second}
	s := open(t, c)
	if s.ID() == 0 || s.Timeout() != 2*time.Second || s.Suspended() != nil || s.Err() != nil {
		t.Fatalf("session %x, timeout %v, %v, %v", s.ID(), s.Timeout(), s.Suspended(), s.Err())
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
	if !slices.Equal(r[3].Children, []string{"n-0000000000", "n-0000000001"}) || r[3].Committed {
		t.Errorf("children: %+v", r[3])
	}
	if string(r[4].Data) != "data" || r[4].Stat.Czxid != r[1].Zxid || r[4].Stat.EphemeralOwner != s.ID() {
		t.Errorf("data: %+v; the token of %+v", r[4], r[1])
	}
	if r[5].Stat.Czxid != r[2].Zxid || r[6].Stat.Version != 1 {
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
	must(t, err)
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
	must(t, s.Close(within(t)))
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
	if err != nil || info.Role != Standalone || info.Zxid == 0 || !strings.HasPrefix(info.Version, "3.") {
		t.Errorf("probe: %+v, %v", info, err)
	}
}

// TestNotDone: every code that a leader commits as a refusal says that nothing was done, and what a server may
// answer after it has committed something does not.
func TestNotDone(t *testing.T) {
	for code := Code(-200); code < 0; code++ {
		if committed(code) && !code.NotDone() {
			t.Errorf("%v: a committed refusal may have been done", code)
		}
	}
	for _, code := range []Code{-1, -3, -4, -5, -7, -100, SessionExpired, SessionMoved, -122, -1000} {
		if code.NotDone() {
			t.Errorf("%v certainly says that nothing was done", code)
		}
	}
}
