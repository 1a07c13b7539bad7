package fence

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/explore"
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
	broken     violation
}

// guard admits a touch or returns an error.
type guard func(g *Gate, token driver.Token, mode driver.Mode, write bool) error

// violation is what must not happen; 0 is that all is well.
type violation uint8

const (
	lostUpdate   violation = 1 + iota // a write over a value that the writer never read
	tornRead                          // a reader saw two values under one shared hold
	wrongRefusal                      // a client was refused while it held the lock
)

func (v violation) Error() string {
	return [...]string{"none", "lost update", "torn read", "wrong refusal"}[v]
}

type model struct {
	modes [3]driver.Mode // of the clients: writers are exclusive, readers shared
	guard guard
	split bool // admission is one step, and the touch that it admits another
}

// next returns every step that is possible in w.
func (m *model) next(w world) []explore.Step[world] {
	var steps []explore.Step[world]
	if w.now < modelEnd {
		t := w
		t.now++
		steps = append(steps, explore.Step[world]{Name: "tick", To: t})
	}
	for i, c := range w.clients {
		switch {
		case c.at != waiting:
			t := m.touch(w, i)
			name := "client " + strconv.Itoa(i) + " touches"
			if t.clients[i].passed {
				name = "client " + strconv.Itoa(i) + " is admitted"
			}
			steps = append(steps, explore.Step[world]{Name: name, To: t})
		case c.holds < modelHolds && m.free(w, i):
			t := w
			t.tokens++
			t.clients[i] = client{at: holding, holds: c.holds + 1, expires: w.now + modelTTL, token: t.tokens}
			name := fmt.Sprintf("client %d acquires (%v, token %d)", i, m.modes[i], t.tokens)
			steps = append(steps, explore.Step[world]{Name: name, To: t})
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
func (m *model) touch(w world, i int) world {
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
	switch {
	case err == nil && t.clients[i].passed:
		// admitted, and not there yet
	case err != nil:
		if w.now < c.expires {
			t.broken = wrongRefusal
		}
		t.clients[i] = released
	case c.at == holding:
		t.clients[i].at, t.clients[i].saw = halfway, w.value
	default:
		if write && c.saw != w.value {
			t.broken = lostUpdate
		} else if c.saw != w.value {
			t.broken = tornRead
		}
		if write {
			t.value = c.saw + 1
		}
		t.clients[i] = released
	}
	return t
}

// explore looks for a shortest way to one kind of violation. Nothing follows a violation.
func (m *model) explore(v violation) (explore.Result, error) {
	return explore.Model[world, world]{
		Key: func(w world) world { return w },
		Next: func(w world) []explore.Step[world] {
			if w.broken != 0 {
				return nil
			}
			return m.next(w)
		},
		Check: func(w world) error {
			if w.broken == v {
				return v
			}
			return nil
		},
	}.First(1_000_000)
}

// door is the case in which the admission and the work are two steps.
const door = "guard at the door"

// TestModel explores the guard and every way in which it could be less.
func TestModel(t *testing.T) {
	both := []violation{lostUpdate, tornRead}
	admit := func(g *Gate, token driver.Token, mode driver.Mode, _ bool) error { return g.Admit(token, mode) }
	for _, c := range []struct {
		name  string
		guard guard
		want  []violation
	}{
		{"guard on every touch", admit, nil},
		{door, admit, both},
		{"no guard", func(*Gate, driver.Token, driver.Mode, bool) error {
			return nil
		}, both},
		{"reads checked but not adopted", func(g *Gate, token driver.Token, mode driver.Mode, write bool) error {
			before := g.marks
			err := g.Admit(token, mode)
			if !write {
				g.marks = before
			}
			return err
		}, both},
		{"one mark for both modes", func(g *Gate, token driver.Token, _ driver.Mode, _ bool) error {
			return g.Admit(token, driver.Exclusive)
		}, []violation{wrongRefusal}},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := map[error]bool{}
			for _, modes := range [][3]driver.Mode{
				{driver.Exclusive, driver.Exclusive, driver.Shared},
				{driver.Exclusive, driver.Shared, driver.Shared},
			} {
				m := model{modes: modes, guard: c.guard, split: c.name == door}
				for _, v := range []violation{lostUpdate, tornRead, wrongRefusal} {
					r, err := m.explore(v)
					if err != nil {
						t.Fatal(err)
					}
					t.Logf("%v: %v", modes, r)
					for _, f := range r.Findings {
						found[f.Err] = true
						t.Logf("%v: %v", modes, f)
					}
				}
			}
			for _, v := range c.want {
				if !found[v] {
					t.Errorf("did not find: %v", v)
				}
				delete(found, v)
			}
			for v := range found {
				t.Errorf("found: %v", v)
			}
		})
	}
}
