package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

// lock takes a lock of its own, measures renewals, and releases it.
func lock(ctx context.Context, p Patient) []Finding {
	const check, risk = "lock", "no lock can be taken here"
	remedy := "see the findings above, or the store's own log"
	if p.Client == nil {
		if p.URL.Host != "" {
			remedy = "see whether the server runs, whether the URL names it and this user, and whether this host can reach it"
		}
		return []Finding{{check, Error, p.Err.Error(), risk, remedy}} // the error says that the store cannot be opened
	}
	o := &holdfast.Options{Note: "holdfast doctor"}
	if p.Client.Caps().NoNotes {
		o = nil
	}
	start := time.Now()
	lease, err := p.Client.Mutex("holdfast-doctor/"+rand.Text(), o).TryAcquire(ctx)
	if held, is := errors.AsType[*holdfast.HeldError](err); is && held.Forgotten > 0 {
		return []Finding{{check, Note, "a lock is " + held.Error(), "until then no lock can be taken", "wait, and run doctor again"}}
	}
	if err != nil {
		return []Finding{{check, Error, fmt.Sprintf("a lock cannot be taken: %v", err), risk, remedy}}
	}
	took := time.Since(start)
	var renewals []time.Duration // at most 200, in about a second
	for begun := time.Now(); err == nil && len(renewals) < 200 && (len(renewals) < 5 || time.Since(begun) < time.Second); {
		sent := time.Now()
		err = lease.Renew(ctx)
		renewals = append(renewals, time.Since(sent))
	}
	start = time.Now()
	if released := lease.Release(); err == nil {
		err = released
	}
	if err != nil {
		return []Finding{{check, Error, fmt.Sprintf("a lock cannot be kept and given back: %v", err), risk, remedy}}
	}
	took += renewals[0] + time.Since(start)
	return []Finding{judgeLatency(renewals), {
		Check: check, Severity: OK, Found: fmt.Sprintf("taking, renewing and giving back a lock took %v", took.Round(10*time.Microsecond)),
	}}
}

// shortest is how many renewals the shortest TTL must last, so that one can be tried several times.
const shortest = 20

// judgeLatency judges which TTLs renewals allow that took as long as these.
func judgeLatency(took []time.Duration) Finding {
	sorted := slices.Sorted(slices.Values(took))
	p99 := sorted[(len(sorted)-1)*99/100]
	ttl := max((shortest * p99).Round(time.Millisecond), time.Millisecond)
	f := Finding{Check: "latency", Severity: OK, Found: fmt.Sprintf(
		"99 of 100 renewals took up to %v: enough for TTLs from %v", p99.Round(10*time.Microsecond), ttl)}
	if ttl > holdfast.DefaultTTL/5 {
		f.Severity = Warning
		f.Risk = fmt.Sprintf("with a TTL below %v a few slow answers lose a lock; the default is %v", ttl, holdfast.DefaultTTL)
		f.Remedy = "look for what slows the server or the way to it, and use long TTLs"
	}
	return f
}

// watchTime is for how long a server's clock is compared.
const watchTime = 500 * time.Millisecond

// serverClock compares a server's clock with this host's, as far as the server can be asked.
func serverClock(ctx context.Context, read func() (time.Time, error)) ([]Finding, error) {
	first, err := readClock(read)
	if err != nil {
		return nil, err
	}
	select {
	case <-time.After(watchTime):
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
