// Package explore visits every state that a small model can reach, and checks each: explicit-state
// model checking for tests, as in Holzmann's SPIN. The model is written in Go around the code that
// is checked.
//
// A model is a start and a function that returns every step out of a state. Exploring it covers
// every order of the steps: if sending, receiving and giving up are separate steps, it covers every
// interleaving of them. A state without steps is an end. A waiter that nothing will ever wake shows
// as a wrong end.
package explore

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// Step is one thing that can happen in a state.
type Step[S any] struct {
	Name string
	To   S
}

// Model is what is explored. Its states S are distinguished by their keys K.
type Model[S any, K comparable] struct {
	Start S
	// Key returns what distinguishes the state. States with the same key must have the same future.
	Key func(S) K
	// Next returns the steps out of a state. It must not change the state.
	Next func(S) []Step[S]
	// Check returns what is wrong with a state. Nothing is explored behind a wrong state. Nil: no
	// state is wrong.
	Check func(S) error
	// End returns what is wrong with ending in a state, which has no steps. Nil: every end is fine.
	End func(S) error

	until time.Time // when to stop; zero: never
}

// Finding is something wrong, and the way to it.
type Finding struct {
	Err error
	Way []string // names of the steps from the start; a shortest way, if explored
}

// String returns the error and the way, one step on each line.
func (f Finding) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v, after %d steps:", f.Err, len(f.Way))
	for i, name := range f.Way {
		fmt.Fprintf(&b, "\n%4d. %s", i+1, name)
	}
	return b.String()
}

// Result is the outcome of an exploration.
type Result struct {
	States, Steps, Ends int
	Depth               int       // steps to the farthest state
	Findings            []Finding // the first, by a shortest way to it, or none
}

// String returns the counts, without the findings.
func (r Result) String() string {
	return fmt.Sprintf("%d states, %d steps, %d ends, depth %d, %d findings",
		r.States, r.Steps, r.Ends, r.Depth, len(r.Findings))
}

// First explores until the first finding. It returns an error if the model has more states than the
// budget: exploring a part of it says little.
func (m Model[S, K]) First(budget int) (Result, error) { return m.explore(budget) }

// For explores until the first finding, as deep as the time allows. It reports whether it has
// explored everything.
func (m Model[S, K]) For(d time.Duration) (r Result, all bool) {
	m.until = time.Now().Add(d)
	r, err := m.explore(math.MaxInt)
	return r, err == nil && len(r.Findings) == 0
}

var errTime = errors.New("the time is over")

// visit is the first way by which a state was reached.
type visit struct {
	name  string
	from  int // the visit before; -1 at the start
	depth int
}

// explore goes breadth first, so that the first way to a state is a shortest one.
func (m Model[S, K]) explore(budget int) (Result, error) {
	var r Result
	visits := []visit{{from: -1}}
	states := []S{m.Start} // of the visits from next on
	seen := map[K]struct{}{m.Key(m.Start): {}}
	for next := 0; next < len(visits); next++ {
		if !m.until.IsZero() && time.Now().After(m.until) {
			return r, errTime
		}
		state := states[0]
		states[0] = *new(S) // so that it can be freed
		states = states[1:]
		r.States++
		r.Depth = visits[next].depth
		steps, err := m.at(state)
		if len(steps) == 0 && err == nil {
			r.Ends++
		}
		if err != nil {
			r.Findings = []Finding{{err, way(visits, next)}}
			return r, nil
		}
		for _, s := range steps {
			r.Steps++
			key := m.Key(s.To)
			if _, old := seen[key]; old {
				continue
			}
			if len(seen) == budget {
				return r, fmt.Errorf("more than %d states; so far: %v", budget, r)
			}
			seen[key] = struct{}{}
			visits = append(visits, visit{s.Name, next, visits[next].depth + 1})
			states = append(states, s.To)
		}
	}
	return r, nil
}

// at checks a state, and returns the steps out of it.
func (m Model[S, K]) at(state S) ([]Step[S], error) {
	if m.Check != nil {
		if err := m.Check(state); err != nil {
			return nil, err
		}
	}
	steps := m.Next(state)
	if len(steps) == 0 && m.End != nil {
		return nil, m.End(state)
	}
	return steps, nil
}

func way(visits []visit, at int) (names []string) {
	for ; visits[at].from >= 0; at = visits[at].from {
		names = append(names, visits[at].name)
	}
	slices.Reverse(names)
	return names
}

// Walk goes one random way of at most length steps, for models too large to be explored. The same
// seed goes the same way. It returns the number of steps, and its finding or nil.
func (m Model[S, K]) Walk(seed uint64, length int) (int, *Finding) {
	random := rand.New(rand.NewPCG(seed, 0))
	state := m.Start
	var names []string
	for {
		steps, err := m.at(state)
		if err != nil {
			return len(names), &Finding{err, names}
		}
		if len(steps) == 0 || len(names) == length {
			return len(names), nil
		}
		s := steps[random.IntN(len(steps))]
		names = append(names, s.Name)
		state = s.To
	}
}

// Holds fails the test unless the whole model can be explored within the budget of states, without
// a finding.
func (m Model[S, K]) Holds(t testing.TB, budget int) {
	t.Helper()
	r, err := m.First(budget)
	t.Log(r)
	if err != nil {
		t.Error(err)
	}
	for _, f := range r.Findings {
		t.Error(f)
	}
}

// Breaks fails the test unless exploring the model finds an error that contains want. It is for
// models with a planted mistake: a check that finds no mistake proves nothing.
func (m Model[S, K]) Breaks(t testing.TB, budget int, want string) {
	t.Helper()
	r, err := m.First(budget)
	t.Log(r)
	if err != nil {
		t.Error(err)
	}
	for _, f := range r.Findings {
		if strings.Contains(f.Err.Error(), want) {
			t.Log(f)
			return
		}
		t.Error(f)
	}
	t.Errorf("did not find %q", want)
}

// Walks fails the test if any of so many random walks of at most length steps finds something
// wrong. It prints the seed, which repeats the walk.
func (m Model[S, K]) Walks(t testing.TB, seeds uint64, length int) {
	t.Helper()
	steps := 0
	for seed := range seeds {
		n, f := m.Walk(seed, length)
		steps += n
		if f != nil {
			t.Errorf("seed %d: %v", seed, f)
			return
		}
	}
	t.Logf("%d steps on %d ways", steps, seeds)
}
