package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/redislock"
)

// apart is how far the two looks at the server's clock are apart, at least, and
// trips how many round trips are measured meanwhile.
const (
	apart = 500 * time.Millisecond
	trips = 200
)

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

// redisClockAndLatency measures clock and round trips, for as long as apart.
func redisClockAndLatency(ctx context.Context, r *redisServer) []Finding {
	first, err := r.sight(ctx)
	if err != nil {
		return clockUnseen(err)
	}
	findings := redisLatency(ctx, r)
	select {
	case <-time.After(apart - driver.HostClock.Now().Sub(first.end)):
	case <-ctx.Done():
	}
	second, err := r.sight(ctx)
	if err != nil {
		return append(findings, clockUnseen(err)...)
	}
	return append(findings, judgeServerClock(first, second))
}

func clockUnseen(err error) []Finding {
	if _, ok := errors.AsType[*redislock.ServerError](err); ok {
		return nil // it is refused, or no script runs: other findings say so
	}
	return connectionTrouble("server clock", err)
}

// sight looks at the server's clock a few times, as scripts see it, and returns
// the closest look.
func (r *redisServer) sight(ctx context.Context) (best sighting, err error) {
	for i := range 3 {
		s := sighting{before: time.Now().Round(0), start: driver.HostClock.Now()}
		reply := r.ask(ctx, "EVAL", "return redis.call('TIME')", "1", r.scratch)
		s.end, s.after = driver.HostClock.Now(), time.Now().Round(0)
		if reply.Err != nil {
			return best, reply.Err
		}
		list, _ := reply.Value.([]any)
		if len(list) != 2 {
			return best, fmt.Errorf("the clock is %.50q", fmt.Sprint(reply.Value))
		}
		seconds, err1 := strconv.ParseInt(fmt.Sprint(list[0]), 10, 64)
		micros, err2 := strconv.ParseInt(fmt.Sprint(list[1]), 10, 64)
		if err := errors.Join(err1, err2); err != nil {
			return best, err
		}
		s.server = time.Unix(seconds, micros*1000)
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

// redisLatency measures round trips, and sets them against the TTL.
func redisLatency(ctx context.Context, r *redisServer) []Finding {
	took := make([]time.Duration, 0, trips)
	for begun := time.Now(); len(took) < trips && (len(took) < 5 || time.Since(begun) < time.Second); {
		start := time.Now()
		if err := r.ask(ctx, "GET", r.scratch).Err; err != nil {
			if _, ok := errors.AsType[*redislock.ServerError](err); !ok {
				return connectionTrouble("latency", err)
			}
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return []Finding{judgeLatency(took[len(took)/2], took[(len(took)-1)*99/100], len(took))}
}

// shortest is how many round trips a TTL must last at the least, so that a renewal
// can be made several times before it is too late.
const shortest = 20

func judgeLatency(p50, p99 time.Duration, n int) Finding {
	ttl := (shortest * p99).Round(time.Millisecond)
	round := func(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
	f := Finding{Check: "latency", Severity: OK, Found: fmt.Sprintf(
		"of %d round trips half took up to %v, 99 of 100 up to %v: enough for TTLs from %v", n, round(p50), round(p99), max(ttl, time.Millisecond))}
	if ttl > holdfast.DefaultTTL/5 {
		f.Severity = Warning
		f.Risk = fmt.Sprintf("with a TTL below %v a few slow answers lose a lock; the default is %v", ttl, holdfast.DefaultTTL)
		f.Remedy = "look for what slows the server or the way to it, and use long TTLs"
	}
	return f
}
