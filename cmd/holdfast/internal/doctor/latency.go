package doctor

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfastlock/holdfast"
)

// trips is how many operations are measured.
const trips = 200

// latency measures an operation, for about a second at most, and returns which TTLs it allows.
func latency(what string, operation func() error) (Finding, error) {
	took := make([]time.Duration, 0, trips)
	for begun := time.Now(); len(took) < trips && (len(took) < 5 || time.Since(begun) < time.Second); {
		start := time.Now()
		if err := operation(); err != nil {
			return Finding{}, err
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return judgeLatency(what, took[len(took)/2], took[(len(took)-1)*99/100], len(took)), nil
}

// shortest is how many round trips the shortest TTL must last, so that a renewal can be tried
// several times.
const shortest = 20

func judgeLatency(what string, p50, p99 time.Duration, n int) Finding {
	ttl := (shortest * p99).Round(time.Millisecond)
	round := func(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
	f := Finding{Check: "latency", Severity: OK, Found: fmt.Sprintf(
		"of %d %s half took up to %v, 99 of 100 up to %v: enough for TTLs from %v",
		n, what, round(p50), round(p99), max(ttl, time.Millisecond))}
	if ttl > holdfast.DefaultTTL/5 {
		f.Severity = Warning
		f.Risk = fmt.Sprintf("with a TTL below %v a few slow answers lose a lock; the default is %v",
			ttl, holdfast.DefaultTTL)
		f.Remedy = "look for what slows the server or the way to it, and use long TTLs"
	}
	return f
}
