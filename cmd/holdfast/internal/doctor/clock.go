package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// watchTime is for how long the clocks are compared. skew is by how much they may differ after that
// time; part of it is for delays by the scheduler.
const (
	watchTime = 250 * time.Millisecond
	skew      = 25 * time.Millisecond
)

// clock checks that the clock that leases are trusted by runs, and that it runs as fast as the wall
// clock. The margin of a lease allows for a difference of a fifty-first part.
func clock(context.Context, Patient) []Finding {
	mono, wall, host := time.Now(), time.Now().Round(0), driver.HostClock.Now()
	time.Sleep(watchTime)
	return []Finding{judgeClocks(time.Since(mono), time.Now().Round(0).Sub(wall), driver.HostClock.Now().Sub(host), time.Now().Year())}
}

// judgeClocks judges how far the clocks have run in the same time.
func judgeClocks(mono, wall, host time.Duration, year int) Finding {
	f := Finding{Check: "clock", Severity: OK, Found: "the host's clocks run, and at the same rate"}
	switch {
	case host < watchTime/2 || (host-mono).Abs() > skew:
		f.Severity = Error
		f.Found = fmt.Sprintf("the clock that leases are trusted by ran %v while %v went by", host, mono)
		f.Risk = "leases end too late or too early: two holders are possible"
		f.Remedy = "do not run holdfast under a program that fakes the time; check the virtual " +
			"machine's clock source"
	case (wall - mono).Abs() > skew:
		f.Severity = Warning
		f.Found = fmt.Sprintf("the wall clock ran %v while %v went by: it is being set", wall, mono)
		f.Risk = "stores that use wall clocks, and tokens made of them, may go wrong"
		f.Remedy = "let NTP slew the clock rather than step it, and run doctor again"
	case year < 2024:
		f.Severity = Warning
		f.Found = fmt.Sprintf("the wall clock says that it is the year %d", year)
		f.Risk = "fencing tokens made of the time may be lower than those given before"
		f.Remedy = "set the clock before locks are used"
	}
	return f
}
