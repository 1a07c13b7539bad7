package explore

import (
	"strings"
	"testing"
)

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
