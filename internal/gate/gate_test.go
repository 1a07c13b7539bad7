package gate_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/gate"
)

var (
	exclusive = gate.Shape{TTL: time.Second}
	shared    = gate.Shape{Mode: driver.Shared, TTL: time.Second}
	noted     = gate.Shape{TTL: time.Second, Note: "another"}
	two       = gate.Shape{Mode: driver.Slot, Slots: 2, Permits: 1}
	three     = gate.Shape{Mode: driver.Slot, Slots: 3, Permits: 1}
)

// enter puts waiters of these shapes into a gate.
func enter(t *testing.T, g *gate.Gate, shapes ...gate.Shape) (waiters []*gate.Waiter) {
	t.Helper()
	for _, s := range shapes {
		w := &gate.Waiter{Shape: s}
		if err := g.Enter(w); err != nil {
			t.Fatal(err)
		}
		waiters = append(waiters, w)
	}
	return waiters
}

func at(g *gate.Gate) []*gate.Waiter { return slices.Collect(g.Waiters()) }

func owner() string { return "o1" }

// sent gives the gate a place that the store knows.
func sent(g *gate.Gate) {
	g.Place(owner)
	g.Sent()
	g.Tell()
}

func roles(ws []*gate.Waiter) string {
	var names []string
	for _, w := range ws {
		names = append(names, [...]string{"behind", "head", "joined", "held"}[w.Role])
	}
	return strings.Join(names, " ")
}

func TestEnter(t *testing.T) {
	var g gate.Gate
	if !g.Empty() {
		t.Error("the zero gate is not empty")
	}
	ws := enter(t, &g, exclusive, shared, noted)
	if roles(ws) != "head behind behind" || !slices.Equal(at(&g), ws) || g.Empty() {
		t.Errorf("%s of %d", roles(ws), len(at(&g)))
	}
}

// TestMismatch: those at one gate use the name as one kind of lock (P10).
func TestMismatch(t *testing.T) {
	for _, c := range []struct {
		first, second gate.Shape
		want          error
	}{
		{exclusive, shared, nil},
		{shared, noted, nil},
		{two, two, nil},
		{two, gate.Shape{Mode: driver.Slot, Slots: 2, Permits: 2}, nil},
		{exclusive, two, driver.ErrMismatch},
		{two, shared, driver.ErrMismatch},
		{two, three, driver.ErrMismatch},
	} {
		var g gate.Gate
		enter(t, &g, c.first)
		for _, try := range []bool{false, true} {
			if err := g.Enter(&gate.Waiter{Shape: c.second, Try: try}); !errors.Is(err, c.want) {
				t.Errorf("%+v, then %+v: %v", c.first, c.second, err)
			}
		}
		if n := len(at(&g)); c.want != nil && n != 1 {
			t.Errorf("%d waiters after a refusal", n)
		}
	}
}

// TestTries: tries leave as soon as the name is known to be held.
func TestTries(t *testing.T) {
	var g gate.Gate
	ws := enter(t, &g, exclusive, exclusive, shared)
	try := &gate.Waiter{Shape: exclusive, Try: true}
	if err := g.Enter(try); err != nil || try.Role != gate.Behind {
		t.Fatalf("a try behind a head that knows nothing: %v, %v", try.Role, err)
	}
	if refused := g.Tell(); !slices.Equal(refused, []*gate.Waiter{try}) || try.Role != gate.Held {
		t.Errorf("refused %d, role %v", len(refused), try.Role)
	}
	if !g.Told() || !g.Hot() || !slices.Equal(at(&g), ws) {
		t.Errorf("told %v, hot %v, %d waiters", g.Told(), g.Hot(), len(at(&g)))
	}
	late := &gate.Waiter{Shape: exclusive, Try: true}
	if err := g.Enter(late); err != nil || late.Role != gate.Held || len(at(&g)) != 3 {
		t.Errorf("a try at a gate that has been told: %v, %v", late.Role, err)
	}
	if next, p := g.Leave(try); next != nil || p.Owner != "" || len(at(&g)) != 3 {
		t.Error("one who had left already left again")
	}
	// A head that tries keeps its role, and leaves by itself.
	var h gate.Gate
	head := &gate.Waiter{Try: true}
	if err := h.Enter(head); err != nil || len(h.Tell()) != 0 || head.Role != gate.Head {
		t.Errorf("a head that tries: %v, %v", head.Role, err)
	}
}

// TestGrant: a hold goes to the head, and a shared one to its like right behind.
func TestGrant(t *testing.T) {
	for _, c := range []struct {
		name   string
		shapes []gate.Shape
		want   string // roles after the grant
		joined int
		next   int // -1: none
		hot    bool
	}{
		{"alone", []gate.Shape{exclusive}, "head", 0, -1, true},
		{"exclusive", []gate.Shape{exclusive, exclusive, shared}, "head head behind", 0, 1, true},
		{"shared neighbours", []gate.Shape{shared, shared, shared, exclusive, shared}, "head joined joined head behind", 2, 3, false},
		{"all shared", []gate.Shape{shared, shared}, "head joined", 1, -1, false},
		{"other readers", []gate.Shape{shared, {Mode: driver.Shared, TTL: time.Minute}}, "head head", 0, 1, false},
		{"slots are not shared", []gate.Shape{two, two}, "head head", 0, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var g gate.Gate
			ws := enter(t, &g, c.shapes...)
			sent(&g)
			joined, next := g.Grant()
			if roles(ws) != c.want || !slices.Equal(joined, ws[1:1+c.joined]) {
				t.Errorf("%s, %d joined", roles(ws), len(joined))
			}
			if c.next < 0 && (next != nil || !g.Empty()) || c.next >= 0 && next != ws[c.next] {
				t.Errorf("next is %v of %d", next, len(at(&g)))
			}
			if g.Told() || g.Hot() != c.hot {
				t.Errorf("told %v, hot %v", g.Told(), g.Hot())
			}
			if next != nil {
				if p := g.Place(func() string { return "o2" }); p != (gate.Place{Owner: "o2", Shape: next.Shape}) {
					t.Errorf("the next has the place %+v", p)
				}
			}
		})
	}
}

// TestLeave: the place passes to a head of the same shape, and is given out to
// be withdrawn where there is none.
func TestLeave(t *testing.T) {
	place := gate.Place{Owner: "o1", Shape: exclusive, Sent: true}
	for _, c := range []struct {
		name     string
		shapes   []gate.Shape
		leaves   int
		next     int // -1: none
		withdraw gate.Place
		told     bool
	}{
		{"alone", []gate.Shape{exclusive}, 0, -1, place, false},
		{"an heir", []gate.Shape{exclusive, exclusive}, 0, 1, gate.Place{}, true},
		{"another shape", []gate.Shape{exclusive, noted, exclusive}, 0, 1, place, false},
		{"another mode", []gate.Shape{exclusive, shared}, 0, 1, place, false},
		{"from behind", []gate.Shape{exclusive, noted, exclusive}, 1, -1, gate.Place{}, true},
		{"the last", []gate.Shape{exclusive, exclusive}, 1, -1, gate.Place{}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var g gate.Gate
			ws := enter(t, &g, c.shapes...)
			sent(&g)
			next, withdraw := g.Leave(ws[c.leaves])
			if c.next < 0 && next != nil || c.next >= 0 && (next != ws[c.next] || next.Role != gate.Head) {
				t.Errorf("next is %v", next)
			}
			if withdraw != c.withdraw || g.Told() != c.told || len(at(&g)) != len(ws)-1 {
				t.Errorf("withdraw %+v, told %v, %d waiters", withdraw, g.Told(), len(at(&g)))
			}
			if next, p := g.Leave(ws[c.leaves]); next != nil || p != (gate.Place{}) {
				t.Error("it left twice")
			}
			if g.Empty() {
				return
			}
			want := gate.Place{Owner: "o2", Shape: g.First().Shape}
			if c.withdraw == (gate.Place{}) {
				want = place
			}
			if p := g.Place(func() string { return "o2" }); p != want {
				t.Errorf("the head has the place %+v, want %+v", p, want)
			}
		})
	}
}

// TestRenounce: a place is given out once; the next request takes a new one.
func TestRenounce(t *testing.T) {
	var g gate.Gate
	enter(t, &g, exclusive)
	sent(&g)
	g.Unsent()
	if p := g.Place(owner); p.Sent {
		t.Error("sent, although the store has nothing")
	}
	g.Sent()
	if p := g.Renounce(); p != (gate.Place{Owner: "o1", Shape: exclusive, Sent: true}) {
		t.Errorf("renounced %+v", p)
	}
	if p := g.Renounce(); p != (gate.Place{}) {
		t.Errorf("renounced %+v as well", p)
	}
	if p := g.Place(func() string { return "o2" }); p.Owner != "o2" || p.Sent {
		t.Errorf("the new place is %+v", p)
	}
}

// TestKeepsNothing: a gate holds on to nobody who has left, and is as good as
// new after a reset (P9).
func TestKeepsNothing(t *testing.T) {
	var g gate.Gate
	ws := enter(t, &g, shared, shared, exclusive, exclusive, exclusive)
	sent(&g)
	g.Grant()
	g.Leave(ws[3])
	g.Leave(ws[2])
	g.Leave(ws[4])
	for i, w := range ws {
		if *w != (gate.Waiter{Shape: w.Shape, Role: w.Role}) {
			t.Errorf("waiter %d still knows others: %+v", i, w)
		}
	}
	if !g.Empty() || g != (gate.Gate{}) {
		t.Errorf("the gate still has somebody: %+v", g)
	}
	enter(t, &g, exclusive)
	g.Tell()
	g.Leave(g.First())
	g.Reset()
	if g.Told() || g.Hot() || !g.Empty() {
		t.Error("a reset gate remembers something")
	}
}

// TestCrowdLeaves: of very many, in any order, each leaves in a few steps; a gate that
// looked for each would need minutes.
func TestCrowdLeaves(t *testing.T) {
	const many = 400_000
	for name, order := range map[string]func(i int) int{
		"the first first": func(i int) int { return i },
		"the last first":  func(i int) int { return many - 1 - i },
		"mixed":           func(i int) int { return i * 7 % many },
	} {
		t.Run(name, func(t *testing.T) {
			var g gate.Gate
			ws := make([]gate.Waiter, many)
			for i := range ws {
				ws[i].Shape = exclusive
				if err := g.Enter(&ws[i]); err != nil {
					t.Fatal(err)
				}
			}
			for i := range many {
				head := g.First()
				next, _ := g.Leave(&ws[order(i)])
				if next != nil && (head != &ws[order(i)] || next != g.First() || next.Role != gate.Head) || g.Empty() != (i == many-1) {
					t.Fatalf("the %dth to leave: next is %v", i, next)
				}
			}
		})
	}
}

// TestMaxHold: who has another maximum hold does not share the head's hold, but may
// inherit its place, or a hold that is passed on.
func TestMaxHold(t *testing.T) {
	var g gate.Gate
	ws := []*gate.Waiter{{Shape: shared}, {Shape: shared, MaxHold: time.Second}, {Shape: shared, MaxHold: time.Second}}
	for _, w := range ws {
		if err := g.Enter(w); err != nil {
			t.Fatal(err)
		}
	}
	sent(&g)
	if _, withdraw := g.Leave(ws[0]); withdraw.Owner != "" || g.Place(nil).Owner != "o1" {
		t.Errorf("the place %q is withdrawn", withdraw.Owner)
	}
	last := &gate.Waiter{Shape: shared}
	if err := g.Enter(last); err != nil {
		t.Fatal(err)
	}
	if joined, next := g.Grant(); len(joined) != 1 || joined[0] != ws[2] || next != last {
		t.Errorf("%d have joined, and the next head is %v", len(joined), next)
	}
	g.Grant()
	enter(t, &g, exclusive)
	g.Shut()
	g.Grant()
	other := &gate.Waiter{Shape: exclusive, MaxHold: time.Second}
	if err := g.Enter(other); err != nil {
		t.Fatal(err)
	}
	if g.Pass(exclusive) != other {
		t.Error("the hold is not passed on")
	}
}
