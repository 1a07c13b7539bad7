package vote

import (
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

const (
	ttl    = 10 * time.Second
	second = driver.Instant(time.Second)
	soon   = driver.Instant(time.Millisecond) // an answer's arrival
)

var three = Rules{Nodes: 3}

// step is a helper that fails unless the step is as wanted.
func expect(t *testing.T, what string, got, want Step) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

// The answers of a node.
var (
	given = Reply{Answer: Given}
	gone  = Reply{Answer: Refused}
	lost  = Reply{Answer: Lost}
)

// TestAttempt: what the exploration does not show: an attempt that can be granted is granted, and at once.
func TestAttempt(t *testing.T) {
	a := three.Begin(ttl, 0)
	expect(t, "one of three", a.Answer(0, given, soon), Step{})
	expect(t, "the same again", a.Answer(0, given, soon), Step{})
	expect(t, "two of three", a.Answer(2, given, soon), Step{Now: Won})
	expect(t, "the third", a.Answer(1, given, soon), Step{})

	a = three.Begin(ttl, 0)
	a.Answer(0, given, soon)
	a.Answer(1, gone, soon)
	expect(t, "no majority left", a.Answer(2, lost, soon), Step{Now: Over})
	expect(t, "given up after that", a.GiveUp(), Step{})

	brings := func(token driver.Token) Reply { return Reply{Answer: Given, Token: token} }
	a = Rules{Nodes: 3, Tokens: true}.Begin(ttl, 0)
	a.Answer(0, brings(5), soon)
	expect(t, "majority", a.Answer(1, brings(9), soon), Step{Nodes: 0b001})
	expect(t, "another token", a.Answer(2, brings(12), soon), Step{Nodes: 0b100})
	a.Wrote(0, false, soon)
	expect(t, "written", a.Wrote(2, true, soon), Step{Now: Won})
	if a.Token != 9 {
		t.Errorf("token %d, want 9, the highest of the majority", a.Token)
	}
	if Valid(ttl) != ttl-102*time.Millisecond {
		t.Error("the drift is not a hundredth and 2 ms")
	}
}

// TestRenewal: a hold is extended as soon as a majority has renewed it, and lost only when a majority does not have
// it.
func TestRenewal(t *testing.T) {
	broken := Reply{Answer: Broken}
	for what, c := range map[string]struct {
		now     driver.Instant
		replies []Reply
		want    []Step
	}{
		"renewed":              {soon, []Reply{given, given, gone}, []Step{{}, {Now: Won}, {Nodes: 0b100}}},
		"one is gone":          {soon, []Reply{gone, given, given}, []Step{{}, {}, {Won, 0b001}}},
		"one is broken":        {soon, []Reply{broken, given, given}, []Step{{}, {}, {Now: Won}}},
		"silence":              {soon, []Reply{given, lost, lost}, []Step{{}, {}, {Now: Failed}}},
		"gone and silence":     {soon, []Reply{given, gone, lost}, []Step{{}, {}, {Now: Failed}}},
		"gone":                 {soon, []Reply{gone, gone, given}, []Step{{}, {Now: Over}, {}}},
		"gone and broken":      {soon, []Reply{broken, gone, given}, []Step{{}, {Now: Over}, {}}},
		"late":                 {second, []Reply{given, given, given}, []Step{{}, {}, {Now: Failed}}},
		"late, and it is gone": {second, []Reply{given, gone, gone}, []Step{{}, {}, {Now: Over}}},
	} {
		r := three.Renew(ttl, second, 0)
		for node, reply := range c.replies {
			expect(t, what, r.Answer(node, reply, c.now), c.want[node])
		}
	}
}
