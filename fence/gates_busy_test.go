package fence

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// TestGatesKeepABusyGate: work that takes many times as long as Retain keeps its gate. Other work waits for it, and
// its token is compared with the mark.
func TestGatesKeepABusyGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gates{Retain: time.Hour}
		stale := func(when string) {
			t.Helper()
			if err := g.Admit("x", 7, driver.Exclusive); !errors.Is(err, ErrStale) {
				t.Errorf("%s: the older token: %v", when, err)
			}
		}
		err := g.Do("x", 8, driver.Exclusive, func() error {
			before := g.gate("x")
			for range 10 {
				time.Sleep(time.Hour)
				if err := g.Admit("another", 1, driver.Exclusive); err != nil {
					t.Error(err)
				}
			}
			if g.gate("x") != before {
				t.Error("there is a second gate, for which other work need not wait")
			}
			stale("during the work")
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		stale("an hour after the work")
		if len(g.busy) != 0 {
			t.Errorf("%d gates seem to be busy", len(g.busy))
		}
	})
}
