package doctor

import (
	"fmt"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// clockInterval is the shortest time between two readings of the server's clock.
const clockInterval = 500 * time.Millisecond

// The differences of clocks that are reported. Two holders are possible if the server's clock runs
// faster or slower than this host's by more than a fifty-first part.
const (
	muchOffset = time.Second
	muchDrift  = 0.001
	maxDrift   = 1.0 / 51
)

// clockReading is a reading of the server's clock, which happened at some moment between two
// readings of this host's clocks.
type clockReading struct {
	server        time.Time
	before, after time.Time      // by this host's wall clock
	start, end    driver.Instant // by the clock that leases are trusted by
}

// readClock reads a server's clock a few times, and returns the reading that took the least time.
func readClock(read func() (time.Time, error)) (best clockReading, err error) {
	for i := range 3 {
		s := clockReading{before: time.Now().Round(0), start: driver.HostClock.Now()}
		s.server, err = read()
		s.end, s.after = driver.HostClock.Now(), time.Now().Round(0)
		if err != nil {
			return best, err
		}
		if i == 0 || s.end.Sub(s.start) < best.end.Sub(best.start) {
			best = s
		}
	}
	return best, nil
}

// judgeServerClock compares the clocks at two readings. It reports only differences that are certain,
// at whatever moment within each round trip the server read its clock.
func judgeServerClock(a, b clockReading) Finding {
	ran := b.server.Sub(a.server)
	// The least and the most time that can have passed here between the server's two readings.
	least, most := b.start.Sub(a.end), b.end.Sub(a.start)
	drift := certain(ran.Seconds()/most.Seconds()-1, ran.Seconds()/least.Seconds()-1)
	offset := time.Duration(certain(float64(b.server.Sub(b.after)), float64(b.server.Sub(b.before))))
	uncertain := b.end.Sub(b.start).Round(10 * time.Microsecond)
	f := Finding{Check: "server clock", Severity: OK, Found: fmt.Sprintf(
		"the server's clock is within %v of this host's, and runs at the same rate",
		max(uncertain, offset.Abs().Round(time.Millisecond)))}
	switch {
	case drift > maxDrift || drift < -maxDrift:
		f.Severity = Error
		f.Found = fmt.Sprintf("the server's clock ran %v while between %v and %v went by here", ran, least, most)
		f.Risk = "holds end at another time there than their holders believe: two holders are possible"
		f.Remedy = "let NTP slew the clocks of both hosts rather than step them, do not fake the " +
			"time, and run doctor again"
	case drift > muchDrift || drift < -muchDrift:
		f.Severity = Warning
		f.Found = fmt.Sprintf("the server's clock ran %v while between %v and %v went by here", ran, least, most)
		f.Risk = "one of the clocks is being set: if it is stepped far, locks end early"
		f.Remedy = "let NTP slew the clocks of both hosts rather than step them, and run doctor again"
	case offset.Abs() > muchOffset:
		f.Severity = Warning
		f.Found = fmt.Sprintf("the server's clock is %v off this host's", offset.Round(time.Millisecond))
		f.Risk = "leases do not depend on that, but one of the clocks is wrong: if it is the server's, " +
			"locks end early or late by as much when it is corrected, " +
			"and after a change of server tokens may be lower than before"
		f.Remedy = "let NTP keep the clocks of both hosts; set the server's while no locks are held"
	}
	return f
}

// certain returns the value of an interval that is nearest to 0.
func certain(low, high float64) float64 {
	switch {
	case low > 0:
		return low
	case high < 0:
		return high
	}
	return 0
}
