package timer

import (
	"testing"

	"github.com/holdfastlock/holdfast/driver"
)

// TestCountsSuspension: the host's clock goes with a timer that counts
// suspension as it does, and any other clock with a timer of package time.
func TestCountsSuspension(t *testing.T) {
	for name, clock := range clocks {
		a := New(clock, func() {})
		a.Set(clock.Now() + 1<<40)
		if _, ok := a.source.(*timerfd); ok != (clock == driver.HostClock) {
			t.Errorf("the timer on the clock %q has a %T", name, a.source)
		}
		a.Close()
	}
}
