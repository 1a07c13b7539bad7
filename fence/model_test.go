package fence

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
)

// This file explores, exhaustively within small bounds, what clients with
// leases can do to a guarded value. The guard is the real Gate, or a version of
// it that is broken on purpose and must be found broken.
//
// The lock itself is ideal: at most one exclusive hold, or shared ones, until
// they expire; tokens from one counter. The clients are not: between any two
// steps a client may stand still for as long as the model lasts, and goes on
// without asking whether it still holds its lock.

const (
	modelTTL   = 2 // ticks
	modelEnd   = 4 // the last tick
	modelHolds = 2 // of each client
)

// client is where one client is. A writer reads, then writes what it has read
// plus one. A reader reads twice and expects to see the same.
type client struct {
	at      uint8 // waiting, holding or halfway
	holds   uint8 // so far
	expires uint8 // the tick at which its hold ends; 0: it has none
	passed  bool  // the guard has admitted its next touch (split models)
	token   driver.Token
	saw     uint8
}

const (
	waiting uint8 = iota
	holding       // has touched nothing yet
	halfway       // has read once
)

// world is a state of the model, comparable.
type world struct {
	now, value uint8
	tokens     driver.Token // the last one given out
	marks      marks
	clients    [3]client
}

// guard admits a touch or returns an error.
type guard func(g *Gate, token driver.Token, mode driver.Mode, write bool) error

// violation is what must not happen; 0 is that all is well.
type violation uint8

const (
	lostUpdate   violation = 1 << iota // a write over a value that the writer never read
	tornRead                           // a reader saw two values under one shared hold
	wrongRefusal                       // a client was refused while it held the lock
)

func (v violation) String() string {
	var names []string
	for i, name := range []string{"lost update", "torn read", "wrong refusal"} {
		if v&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, ", ")
}

// step is what leads from one state to the next: a tick (client -1), or a
// client's next step.
type step struct {
	client int
	to     world
	broken violation
}

type model struct {
	modes [3]driver.Mode // of the clients: writers are exclusive, readers shared
	guard guard
	split bool // admission is one step, and the touch that it admits another
}

// next returns every step that is possible in w.
func (m *model) next(w world) []step {
	var steps []step
	if w.now < modelEnd {
		t := w
		t.now++
		steps = append(steps, step{client: -1, to: t})
	}
	for i, c := range w.clients {
		switch {
		case c.at != waiting:
			steps = append(steps, m.touch(w, i))
		case c.holds < modelHolds && m.free(w, i):
			t := w
			t.tokens++
			t.clients[i] = client{at: holding, holds: c.holds + 1, expires: w.now + modelTTL, token: t.tokens}
			steps = append(steps, step{client: i, to: t})
		}
	}
	return steps
}

// free reports whether the lock is free for client i.
func (m *model) free(w world, i int) bool {
	for j, c := range w.clients {
		if c.expires > w.now && (m.modes[i] == driver.Exclusive || m.modes[j] == driver.Exclusive) {
			return false
		}
	}
	return true
}

// touch lets client i read or write. It releases after its second touch, or
// when it is refused.
func (m *model) touch(w world, i int) step {
	c, t := w.clients[i], w
	mode, released := m.modes[i], client{holds: c.holds}
	write := c.at == halfway && mode == driver.Exclusive
	var err error
	if !c.passed {
		gate := Gate{marks: w.marks}
		err = m.guard(&gate, c.token, mode, write)
		t.marks = gate.marks
	}
	t.clients[i].passed = m.split && !c.passed
	s := step{client: i}
	switch {
	case err == nil && t.clients[i].passed:
		// admitted, and not there yet
	case err != nil:
		if w.now < c.expires {
			s.broken = wrongRefusal
		}
		t.clients[i] = released
	case c.at == holding:
		t.clients[i].at, t.clients[i].saw = halfway, w.value
	default:
		if write && c.saw != w.value {
			s.broken = lostUpdate
		} else if c.saw != w.value {
			s.broken = tornRead
		}
		if write {
			t.value = c.saw + 1
		}
		t.clients[i] = released
	}
	s.to = t
	return s
}

// explore visits every state, breadth first, and returns what went wrong in
// any, with the shortest way to each kind.
func (m *model) explore() (states int, found violation, ways map[violation]string) {
	type visit struct {
		step
		from int
	}
	visits := []visit{{step{client: -1}, -1}}
	seen := map[world]bool{{}: true}
	ways = map[violation]string{}
	for i := 0; i < len(visits); i++ {
		for _, s := range m.next(visits[i].to) {
			if s.broken != 0 {
				if found&s.broken == 0 {
					way := []string{m.describe(visits[i].to, s)}
					for j := i; visits[j].from >= 0; j = visits[j].from {
						way = append(way, m.describe(visits[visits[j].from].to, visits[j].step))
					}
					slices.Reverse(way)
					ways[s.broken] = strings.Join(way, "; ")
				}
				found |= s.broken
				continue // what follows a violation says nothing
			}
			if !seen[s.to] {
				seen[s.to] = true
				visits = append(visits, visit{s, i})
			}
		}
	}
	return len(seen), found, ways
}

func (m *model) describe(from world, s step) string {
	if s.client < 0 {
		return "tick"
	}
	c := from.clients[s.client]
	if c.at == waiting {
		return fmt.Sprintf("client %d acquires (%v, token %d)", s.client, m.modes[s.client], s.to.tokens)
	}
	if s.to.clients[s.client].passed {
		return fmt.Sprintf("client %d is admitted", s.client)
	}
	return fmt.Sprintf("client %d touches", s.client)
}

// door is the case in which the admission and the work are two steps.
const door = "guard at the door"

// TestModel explores the guard and every way in which it could be less.
func TestModel(t *testing.T) {
	refuse := errors.New("refused")
	admit := func(g *Gate, token driver.Token, mode driver.Mode, _ bool) error { return g.Admit(token, mode) }
	for _, c := range []struct {
		name  string
		guard guard
		want  violation
	}{
		{"guard on every touch", admit, 0},
		{door, admit, lostUpdate | tornRead},
		{"no guard", func(*Gate, driver.Token, driver.Mode, bool) error {
			return nil
		}, lostUpdate | tornRead},
		{"guard on writes alone", func(g *Gate, token driver.Token, mode driver.Mode, write bool) error {
			if !write {
				return nil
			}
			return g.Admit(token, mode)
		}, lostUpdate | tornRead},
		{"reads checked but not adopted", func(g *Gate, token driver.Token, mode driver.Mode, write bool) error {
			before := g.marks
			err := g.Admit(token, mode)
			if !write {
				g.marks = before
			}
			return err
		}, lostUpdate | tornRead},
		{"exclusive mark alone", func(g *Gate, token driver.Token, mode driver.Mode, _ bool) error {
			err := g.Admit(token, mode)
			g.marks.shared = 0
			return err
		}, tornRead},
		{"one mark for both modes", func(g *Gate, token driver.Token, _ driver.Mode, _ bool) error {
			return g.Admit(token, driver.Exclusive)
		}, wrongRefusal},
		{"each token once", func(g *Gate, token driver.Token, mode driver.Mode, _ bool) error {
			if token == g.marks.exclusive || token == g.marks.shared {
				return refuse
			}
			return g.Admit(token, mode)
		}, wrongRefusal},
	} {
		t.Run(c.name, func(t *testing.T) {
			var found violation
			for _, modes := range [][3]driver.Mode{
				{driver.Exclusive, driver.Exclusive, driver.Shared},
				{driver.Exclusive, driver.Shared, driver.Shared},
			} {
				m := model{modes: modes, guard: c.guard, split: c.name == door}
				states, broken, ways := m.explore()
				t.Logf("%v: %d states: %v", modes, states, broken)
				found |= broken
				for v, way := range ways {
					if c.want&v == 0 {
						t.Errorf("%v: %s", v, way)
					} else {
						t.Logf("%v: %s", v, way)
					}
				}
			}
			if found != c.want {
				t.Errorf("found %v, want %v", found, c.want)
			}
		})
	}
}
