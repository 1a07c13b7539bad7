package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// watched is for how long the clocks are watched, and skew by how much they may
// differ in that time: the scheduler's share is in it.
const (
	watched = 250 * time.Millisecond
	skew    = 25 * time.Millisecond
)

// clock checks that the clock that leases are trusted by runs, and as fast as
// the wall clock: only a fifty-first part is left for a difference.
func clock(context.Context, Patient) []Finding {
	mono, wall, host := time.Now(), time.Now().Round(0), driver.HostClock.Now()
	time.Sleep(watched)
	return []Finding{judgeClocks(time.Since(mono), time.Now().Round(0).Sub(wall), driver.HostClock.Now().Sub(host), time.Now().Year())}
}

// judgeClocks judges how far the clocks have run in the same time.
func judgeClocks(mono, wall, host time.Duration, year int) Finding {
	f := Finding{Check: "clock", Severity: OK, Found: "the host's clocks run, and at the same rate"}
	switch {
	case host < watched/2 || (host-mono).Abs() > skew:
		f.Severity = Error
		f.Found = fmt.Sprintf("the clock that leases are trusted by ran %v while %v went by", host, mono)
		f.Risk = "leases end too late or too early: two holders are possible"
		f.Remedy = "do not run holdfast under a program that fakes the time; look at the virtual machine's clock source"
	case (wall - mono).Abs() > skew:
		f.Severity = Warning
		f.Found = fmt.Sprintf("the wall clock ran %v while %v went by: it is being set", wall, mono)
		f.Risk = "stores that use wall clocks, and tokens made of them, may go wrong"
		f.Remedy = "let NTP slew the clock rather than step it, and look at it again"
	case year < 2024:
		f.Severity = Warning
		f.Found = fmt.Sprintf("the wall clock says that it is the year %d", year)
		f.Risk = "fencing tokens made of the time may be lower than those given before"
		f.Remedy = "set the clock before locks are used"
	}
	return f
}
