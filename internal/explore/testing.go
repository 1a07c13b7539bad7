package explore

import (
	"strings"
	"testing"
)

// Holds fails the test unless the whole model can be explored within the budget
// of states and nothing is wrong in any.
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

// Breaks fails the test unless something is wrong in the model that says what
// is wanted. A check that cannot fail says nothing: each has a version of the
// model, broken on purpose, that it must find.
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

// Walks fails the test if any of so many random ways of at most length steps
// comes upon something wrong. It says which seed goes that way again.
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
