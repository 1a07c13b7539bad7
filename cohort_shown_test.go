package holdfast_test

import (
	"errors"
	"testing"

	"github.com/holdfastlock/holdfast"
)

// TestCohortShown: a hold of which others were told, by its sequencer or its grant, goes back to the
// store and not to a local waiter. What was made for it and arrives after its release finds that it has
// ended.
func TestCohortShown(t *testing.T) {
	for how, show := range map[string]func(*holdfast.Lease){
		"sequencer": func(l *holdfast.Lease) { l.Sequencer() },
		"grant":     func(l *holdfast.Lease) { l.Grant() },
	} {
		t.Run(how, func(t *testing.T) {
			withBlocks(t, func(w *world) {
				c, f := w.client(nil)
				q, first := w.contend(c, 3, nil)
				show(first)
				releases := f.releases.Load()
				w.release(first)
				if f.releases.Load() == releases {
					t.Error("P1: a hold that was shown was handed over")
				}
				second := q.next("the store handed it over")
				if second.Grant().Owner == first.Grant().Owner {
					t.Error("P1: to the store both leases are one hold")
				}
				if err := c.CheckSequencer(w.ctx, first.Sequencer()); !errors.Is(err, holdfast.ErrNotHeld) {
					t.Errorf("P3: the sequencer of a released lease: %v", err)
				}
				w.release(second)
				w.release(q.next("all others have released"))
				w.free("n", "all are done")
			})
		})
	}
}

// TestCohortShownAfterRelease: to ask about a lease that is over ends nothing of the lease after it.
func TestCohortShownAfterRelease(t *testing.T) {
	withBlocks(t, func(w *world) {
		c, f := w.client(nil)
		q, first := w.contend(c, 3, nil)
		w.release(first)
		second := q.next("it was handed over")
		first.Sequencer()
		releases := f.releases.Load()
		w.release(second)
		if f.releases.Load() != releases {
			t.Error("P8: the cohort has ended early")
		}
		w.release(q.next("it was handed over"))
		w.free("n", "all are done")
	})
}
