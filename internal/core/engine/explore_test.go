package engine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/core/engine"
	"github.com/holdfastlock/holdfast/internal/test/explore/planted"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// small are three callers of one name, with everything that can happen to them, one or two
// mishaps at a time. All of it is explored, to whatever depth.
func small() map[string]*setup {
	three := []wish{{name: "a"}, {name: "a"}, {name: "a"}}
	two := three[:2]
	tries := []wish{{name: "a"}, {name: "a", try: true}, {name: "a"}}
	readers := []wish{{name: "a", mode: driver.Shared}, {name: "a", mode: driver.Shared}, {name: "a"}}
	once := wish{name: "a", minHold: ttl}
	limited := []wish{{name: "a", maxHold: ttl / 2, works: 3 * ttl}}
	working := func(d time.Duration) []wish {
		return []wish{{name: "a", works: d}, {name: "a", works: d}, {name: "a", works: d}, {name: "a", works: d}}
	}
	worlds := map[string]*setup{
		"hand-over":                     {wishes: three, block: 3},
		"a stranger":                    {wishes: three, block: 3, stranger: true},
		"cancel":                        {wishes: three, block: 3, budget: budget{cancels: 1}},
		"cancel, no hand-over":          {wishes: three, budget: budget{cancels: 2}},
		"callers give up":               {wishes: three, stranger: true, held: true, budget: budget{cancels: 3}},
		"callers give up, lost answer":  {wishes: two, stranger: true, held: true, budget: budget{cancels: 2, losses: 1}},
		"a lost answer":                 {wishes: three, block: 3, budget: budget{losses: 1}},
		"a failed request":              {wishes: three, block: 3, budget: budget{fails: 2}},
		"break":                         {wishes: three, block: 3, budget: budget{breaks: 1}},
		"close":                         {wishes: three, block: 3, budget: budget{closes: 1}},
		"a try":                         {wishes: tries, block: 3, budget: budget{cancels: 1}},
		"readers":                       {wishes: readers, block: 3, budget: budget{cancels: 1}},
		"no queue":                      {wishes: three, block: 3, noQueue: true, budget: budget{cancels: 1}},
		"no queue, a lost answer":       {wishes: two, block: 3, noQueue: true, stranger: true, budget: budget{losses: 1}},
		"two: cancel, lost answer":      {wishes: two, block: 3, stranger: true, budget: budget{cancels: 1, losses: 1}},
		"two: break, failure":           {wishes: two, block: 3, stranger: true, budget: budget{breaks: 1, fails: 1}},
		"two: close, lost answer":       {wishes: two, block: 3, budget: budget{closes: 1, losses: 1}},
		"minimum hold, callers give up": {wishes: []wish{once, once, once}, stranger: true, held: true, budget: budget{cancels: 2}},
		// A request under an owner that is withdrawn would lose its hold to the late withdrawal.
		"no queue, late withdrawals": {wishes: two, noQueue: true, stranger: true, held: true, budget: budget{losses: 1, lates: 2}},
		"late withdrawals":           {wishes: readers[1:], block: 3, stranger: true, held: true, budget: budget{cancels: 1, losses: 1, lates: 1}},
		// Before a store that answers in time nobody loses a lease.
		"renewed in time":             {wishes: working(3 * ttl)[:2], block: 3, stranger: true, budget: budget{cancels: 1}},
		"renewed in time after all":   {wishes: working(2 * ttl)[:2], block: 3, budget: budget{fails: 1}},
		"no longer than maximum hold": {wishes: limited, block: 3, stranger: true},
		"as long as a cohort":         {wishes: working(engine.CohortAlone / 2), block: 3},
	}
	for _, s := range worlds {
		s.patient, s.times = true, -1
	}
	// A store that forgets. Time passes at any moment.
	worlds["a replica takes over"] = &setup{wishes: two[:1], stranger: true, budget: budget{copies: 1, forgets: 1, times: 4}}
	worlds["a replica takes over while one waits"] = &setup{wishes: two[:1], stranger: true, held: true, budget: budget{copies: 1, forgets: 1, times: 4}}
	// Of one caller everything can be explored while time passes too, five times.
	worlds["one caller, renewed"] = &setup{
		wishes: []wish{{name: "a", maxHold: 50 * time.Millisecond}}, block: 3, stranger: true,
		budget: budget{losses: 1, times: 5},
	}
	return worlds
}

// large are worlds in which time passes while everything else happens: more than can be
// explored whole.
func large() map[string]*setup {
	return map[string]*setup{
		"two callers, renewed": {
			wishes: []wish{{name: "a"}, {name: "a", maxHold: 30 * time.Millisecond}}, block: 3, stranger: true,
			budget: budget{fails: 1, breaks: 1, times: 6},
		},
		"everything": {
			wishes: []wish{{name: "a", maxHold: 30 * time.Millisecond}, {name: "a"}, {name: "b"}}, block: 3, stranger: true,
			budget: budget{cancels: 1, losses: 1, fails: 1, breaks: 1, closes: 1, times: 8},
		},
	}
}

// soaked are the small worlds that take most of the time. The gate only walks through them.
var soaked = []string{
	"one caller, renewed", "a failed request", "callers give up", "readers", "no queue", "callers give up, lost answer", "close", "a try",
	"two: cancel, lost answer", "minimum hold, callers give up", "cancel, no hand-over",
}

// maxStates is more than any of the small worlds has.
const maxStates = 2_000_000

// TestClient explores the engine as it ships.
func TestClient(t *testing.T) {
	planted.Worlds(t, func(each func(string, func(*testing.T))) {
		for name, s := range small() {
			each(name, func(t *testing.T) {
				if slices.Contains(soaked, name) && !testserver.Soak {
					s.model().Walks(t, 300, 400)
					return
				}
				s.model().Holds(t, maxStates)
			})
		}
		for name, s := range large() {
			each(name, func(t *testing.T) {
				r, all := s.model().For(testserver.Long(2*time.Second, time.Minute))
				t.Logf("%v, everything: %t", r, all)
				for _, f := range r.Findings {
					t.Error(f)
				}
				s.times = -1
				s.model().Walks(t, 300, 400)
			})
		}
	})
}
