package record

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// TestPartOfTheQueue: a store that loads more of a queue whenever a step has used up what it
// loaded, decides as one that loads it all, and tells the same numbers.
func TestPartOfTheQueue(t *testing.T) {
	const waiters = 9
	whole := func(rules *Rules, mode driver.Mode, dead int) Record {
		var r Record
		if _, err := r.Ask(request("holder", 0, 0), "", false, start, start, rules); err != nil {
			t.Fatal(err)
		}
		for i := range waiters {
			req := request(fmt.Sprint("waiter ", i), 0, 0)
			req.Mode = mode
			r.Ask(req, "", true, start, start, rules)
			if i >= dead {
				r.Queue[i].Until = start.Add(time.Hour)
			}
		}
		return r
	}
	for _, mode := range []driver.Mode{driver.Exclusive, driver.Shared} {
		for dead := range waiters + 1 {
			for far := range waiters {
				now := start.Add(5 * time.Second) // those that nobody confirmed are over
				step := func(r *Record, rules *Rules) (queued, ahead int, contended bool) {
					r.Settle(now, rules)
					r.Release("holder", 0, 1, now, rules)
					r.Settle(now, rules)
					held := r.heldError("x", now, rules)
					h := Hold{}
					return held.Queued, r.ahead(fmt.Sprint("waiter ", far)), r.Grant(&h).Contended
				}
				rules := testRules()
				want := whole(rules, mode, dead)
				queued, ahead, contended := step(&want, rules)
				for loaded := 1; ; loaded *= 2 {
					rules := testRules()
					r := whole(rules, mode, dead)
					if loaded < waiters {
						if far >= loaded {
							place := r.Queue[far]
							r.Far, r.FarAhead = &place, far
						}
						r.Queue, r.Unloaded = r.Queue[:loaded], waiters-loaded
					}
					q, _, c := step(&r, rules)
					if r.UsedUp() {
						continue
					}
					if len(r.Holds) != len(want.Holds) || q != queued || c != contended {
						t.Errorf("%v, %d of %d dead, %d loaded: %d holds, %d queued, contended %t; want %d, %d, %t",
							mode, dead, waiters, loaded, len(r.Holds), q, c, len(want.Holds), queued, contended)
					}
					if want.Queued(fmt.Sprint("waiter ", far)) != nil && r.Queued(fmt.Sprint("waiter ", far)) == nil {
						t.Errorf("%v, %d dead, %d loaded: the place of waiter %d is gone, and has %d ahead", mode, dead, loaded, far, ahead)
					}
					break
				}
			}
		}
	}
}

// TestFarPlace: a place that is not among the first is confirmed and given up like another.
func TestFarPlace(t *testing.T) {
	rules := testRules()
	var r Record
	r.Ask(request("holder", 0, 0), "", false, start, start, rules)
	r.Ask(request("first", 0, 0), "", true, start, start, rules)
	r.Unloaded = 5
	for range 2 { // the second time it is confirmed
		_, err := r.Ask(request("far", 0, 0), "", true, start, start, rules)
		held, ok := err.(*driver.HeldError)
		if !ok || held.Queued != 7 || held.Ahead != 6 || r.Queued("far") == nil {
			t.Fatalf("P8: asking far behind gives %#v, and the place is %+v", err, r.Queued("far"))
		}
	}
	r.Release("far", 0, 0, start, rules)
	if r.Queued("far") != nil || r.Unloaded != 5 {
		t.Errorf("P6: a place far behind was given up, and %+v are left", r)
	}
}
