package explore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/internal/test/explore"
)

// counters are two processes that each add one to a number, in two steps: read,
// write.
type counters struct {
	number int
	read   [2]int
	at     [2]int // 0: has done nothing; 1: has read; 2: has written
}

var errLostUpdate = errors.New("an update is lost")

// adding is the model of the counters. If atomic, reading and writing are one
// step, and the end is good.
func adding(atomic bool) explore.Model[counters, counters] {
	return explore.Model[counters, counters]{
		Key: func(s counters) counters { return s },
		Next: func(s counters) (steps []explore.Step[counters]) {
			for i := range s.at {
				to, name := s, ""
				switch {
				case s.at[i] == 2:
					continue
				case atomic:
					name, to.number, to.at[i] = "adds", s.number+1, 2
				case s.at[i] == 0:
					name, to.read[i], to.at[i] = "reads", s.number, 1
				default:
					name, to.number, to.at[i] = "writes", s.read[i]+1, 2
				}
				steps = append(steps, explore.Step[counters]{Name: fmt.Sprintf("%d %s", i, name), To: to})
			}
			return steps
		},
		End: func(s counters) error {
			if s.number != 2 {
				return errLostUpdate
			}
			return nil
		},
	}
}

// TestShortestWay finds the lost update by a way that is a shortest, and a
// legal one.
func TestShortestWay(t *testing.T) {
	r, err := adding(false).First(100)
	if err != nil || len(r.Findings) != 1 || r.Findings[0].Err != errLostUpdate {
		t.Fatalf("%v, %v", r, err)
	}
	way := r.Findings[0].Way
	if len(way) != 4 || way[0][2:] != "reads" || way[1][2:] != "reads" {
		t.Errorf("%q", way)
	}
	if text := r.Findings[0].String(); !strings.Contains(text, "an update is lost, after 4 steps:\n   1. ") {
		t.Errorf("it reads %q", text)
	}
}

// TestStartIsChecked: the start itself may be wrong, or an end.
func TestStartIsChecked(t *testing.T) {
	stuck := errors.New("stuck")
	m := explore.Model[int, int]{
		Key:  func(n int) int { return n },
		Next: func(int) []explore.Step[int] { return nil },
	}
	if r, err := m.First(1); err != nil || len(r.Findings) != 0 || r.Ends != 1 {
		t.Errorf("%v, %v", r, err)
	}
	m.End = func(int) error { return stuck }
	if r, err := m.First(1); err != nil || len(r.Findings) != 1 || len(r.Findings[0].Way) != 0 {
		t.Errorf("%v, %v", r, err)
	}
}

// verdict is a testing.TB that keeps what it is told.
type verdict struct {
	testing.TB
	said []string
}

func (v *verdict) Helper()                   {}
func (v *verdict) Log(...any)                {}
func (v *verdict) Logf(string, ...any)       {}
func (v *verdict) Error(a ...any)            { v.said = append(v.said, fmt.Sprint(a...)) }
func (v *verdict) Errorf(f string, a ...any) { v.said = append(v.said, fmt.Sprintf(f, a...)) }

// TestVerdicts: each of the helpers fails the test when it should, and only
// then.
func TestVerdicts(t *testing.T) {
	good, bad := adding(true), adding(false)
	for _, c := range []struct {
		name string
		run  func(testing.TB)
		want string // "": the test passes
	}{
		{"holds", func(t testing.TB) { good.Holds(t, 10) }, ""},
		{"does not hold", func(t testing.TB) { bad.Holds(t, 100) }, "an update is lost"},
		{"budget", func(t testing.TB) { good.Holds(t, 3) }, "more than 3 states"},
		{"breaks", func(t testing.TB) { bad.Breaks(t, 100, "is lost") }, ""},
		{"breaks otherwise", func(t testing.TB) { bad.Breaks(t, 100, "two holders") }, `did not find "two holders"`},
		{"does not break", func(t testing.TB) { good.Breaks(t, 100, "is lost") }, `did not find "is lost"`},
		{"breaks beyond the budget", func(t testing.TB) { bad.Breaks(t, 4, "is lost") }, "more than 4 states"},
		{"walks", func(t testing.TB) { good.Walks(t, 20, 100) }, ""},
		{"walks into it", func(t testing.TB) { bad.Walks(t, 20, 100) }, "seed "},
	} {
		v := &verdict{TB: t}
		c.run(v)
		switch text := strings.Join(v.said, "\n"); {
		case c.want == "" && text != "":
			t.Errorf("%s: it failed: %s", c.name, text)
		case !strings.Contains(text, c.want) || c.want != "" && text == "":
			t.Errorf("%s: it said %q, want %q", c.name, text, c.want)
		}
	}
}
