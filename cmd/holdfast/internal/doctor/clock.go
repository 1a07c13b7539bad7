package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// watchTime is for how long the clocks are compared, skew by how much they may differ: the scheduler delays.
const (
	watchTime = 250 * time.Millisecond
	skew      = 25 * time.Millisecond
)

// clock checks that the clock that leases are trusted by runs, and that it runs as fast as the wall
// clock. The margin of a lease allows for a difference of a fifty-first part.
func clock() []Finding {
	mono, wall, host := time.Now(), time.Now().Round(0), driver.HostClock.Now()
	time.Sleep(watchTime)
	return []Finding{judgeClocks(time.Since(mono), time.Now().Round(0).Sub(wall), driver.HostClock.Now().Sub(host), time.Now().Year())}
}

// judgeClocks judges how far the clocks have run in the same time.
func judgeClocks(mono, wall, host time.Duration, year int) Finding {
	switch {
	case host < watchTime/2 || (host-mono).Abs() > skew:
		return Finding{
			"clock", Error, fmt.Sprintf("the clock that leases are trusted by ran %v while %v went by", host, mono),
			"leases end too late or too early: two holders are possible",
			"do not run holdfast under a program that fakes the time; check the virtual machine's clock source",
		}
	case (wall - mono).Abs() > skew:
		return Finding{
			"clock", Warning, fmt.Sprintf("the wall clock ran %v while %v went by: it is being set", wall, mono),
			"stores that use wall clocks, and tokens made of them, may go wrong",
			"let NTP slew the clock rather than step it, and run doctor again",
		}
	case year < 2024:
		return Finding{
			"clock", Warning, fmt.Sprintf("the wall clock says that it is the year %d", year),
			"fencing tokens made of the time may be lower than those given before", "set the clock before locks are used",
		}
	}
	return Finding{Check: "clock", Severity: OK, Found: "the host's clocks run, and at the same rate"}
}

// serverClock compares a server's clock with this host's, as far as the server can be asked.
func serverClock(ctx context.Context, read func() (time.Time, error)) ([]Finding, error) {
	first, err := readClock(read)
	if err != nil {
		return nil, err
	}
	select {
	case <-time.After(2 * watchTime):
	case <-ctx.Done():
	}
	second, err := readClock(read)
	if err != nil {
		return nil, err
	}
	return []Finding{judgeServerClock(first, second)}, nil
}

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

// The differences of clocks that are reported. Two holders are possible if the server's clock runs
// faster or slower than this host's by more than a fifty-first part (P1).
const (
	muchOffset = time.Second
	maxDrift   = 1.0 / 51
)

// judgeServerClock compares the clocks at two readings. It reports only differences that are certain,
// at whatever moment within each round trip the server read its clock.
func judgeServerClock(a, b clockReading) Finding {
	ran := b.server.Sub(a.server)
	// The least and the most time that can have passed here between the server's two readings.
	least, most := b.start.Sub(a.end), b.end.Sub(a.start)
	offset := b.server.Sub(b.after) // of the server's clock, if that is ahead
	if offset < 0 {
		offset = min(b.server.Sub(b.before), 0)
	}
	switch {
	case ran.Seconds() > most.Seconds()*(1+maxDrift) || ran.Seconds() < least.Seconds()*(1-maxDrift):
		return Finding{
			"server clock", Error, fmt.Sprintf("the server's clock ran %v while between %v and %v went by here", ran, least, most),
			"holds end at another time there than their holders believe: two holders are possible",
			"let NTP slew the clocks of both hosts rather than step them, do not fake the time, and run doctor again",
		}
	case offset.Abs() > muchOffset:
		return Finding{
			"server clock", Warning, fmt.Sprintf("the server's clock is %v off this host's", offset.Round(time.Millisecond)),
			"leases do not depend on that, but one of the clocks is wrong: if it is the server's, locks end early or late by as much " +
				"when it is corrected, and after a change of server tokens may be lower than before",
			"let NTP keep the clocks of both hosts; set the server's while no locks are held",
		}
	}
	return Finding{Check: "server clock", Severity: OK, Found: fmt.Sprintf(
		"the server's clock is within %v of this host's, and runs at the same rate", max(b.end.Sub(b.start), offset.Abs()).Round(10*time.Microsecond))}
}
