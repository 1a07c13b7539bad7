package doctor

import (
	"fmt"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// apart is how far the two looks at the server's clock are apart, at least.
const apart = 500 * time.Millisecond

// The differences of clocks that are remarked on. The server's may run faster or
// slower than ours by a fifty-first part before two holders are possible.
const (
	muchOffset = time.Second
	muchDrift  = 0.001
	maxDrift   = 1.0 / 51
)

// sighting is a look at the server's clock: it showed this time at some moment
// between the two of ours.
type sighting struct {
	server        time.Time
	before, after time.Time      // by our wall clock
	start, end    driver.Instant // by the clock that leases are trusted by
}

// sight looks at a server's clock a few times, and returns the closest look.
func sight(read func() (time.Time, error)) (best sighting, err error) {
	for i := range 3 {
		s := sighting{before: time.Now().Round(0), start: driver.HostClock.Now()}
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

// judgeServerClock judges what is certain whenever the server read its clock
// within the round trips.
func judgeServerClock(a, b sighting) Finding {
	ran := b.server.Sub(a.server)
	// Between the two looks of the server at least so much went by here, and at most.
	least, most := b.start.Sub(a.end), b.end.Sub(a.start)
	drift := certain(ran.Seconds()/most.Seconds()-1, ran.Seconds()/least.Seconds()-1)
	offset := time.Duration(certain(float64(b.server.Sub(b.after)), float64(b.server.Sub(b.before))))
	uncertain := b.end.Sub(b.start).Round(10 * time.Microsecond)
	f := Finding{Check: "server clock", Severity: OK, Found: fmt.Sprintf(
		"the server's clock is within %v of this host's, and runs at the same rate", max(uncertain, offset.Abs().Round(time.Millisecond)))}
	switch {
	case drift > maxDrift || drift < -maxDrift:
		f.Severity = Error
		f.Found = fmt.Sprintf("the server's clock ran %v while between %v and %v went by here", ran, least, most)
		f.Risk = "holds end at another time there than their holders believe: two holders are possible"
		f.Remedy = "let NTP slew the clocks of both hosts rather than step them, do not fake the time, and look again"
	case drift > muchDrift || drift < -muchDrift:
		f.Severity = Warning
		f.Found = fmt.Sprintf("the server's clock ran %v while between %v and %v went by here", ran, least, most)
		f.Risk = "one of the clocks is being set: if it is stepped far, locks end early"
		f.Remedy = "let NTP slew the clocks of both hosts rather than step them, and look again"
	case offset.Abs() > muchOffset:
		f.Severity = Warning
		f.Found = fmt.Sprintf("the server's clock is %v off this host's", offset.Round(time.Millisecond))
		f.Risk = "leases do not rest on that, but one of the clocks is wrong: if it is the server's, locks end early or late by as much when it is set right, and after a change of server tokens may be lower than before"
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
