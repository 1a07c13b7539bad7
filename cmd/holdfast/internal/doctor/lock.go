package doctor

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastlock/holdfast"
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
	if err != nil {
		return []Finding{{check, Error, fmt.Sprintf("a lock cannot be taken: %v", err), risk, remedy}}
	}
	took := time.Since(start)
	renewals, err := measure(func() error { return lease.Renew(ctx) })
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

// measure returns how long an operation took, at each of at most 200 times in about a second.
func measure(operation func() error) (took []time.Duration, err error) {
	for begun := time.Now(); len(took) < 200 && (len(took) < 5 || time.Since(begun) < time.Second); {
		start := time.Now()
		if err := operation(); err != nil {
			return nil, err
		}
		took = append(took, time.Since(start))
	}
	return took, nil
}

// shortest is how many renewals the shortest TTL must last, so that one can be tried several times.
const shortest = 20

// judgeLatency judges which TTLs renewals allow that took as long as these.
func judgeLatency(took []time.Duration) Finding {
	sorted := slices.Sorted(slices.Values(took))
	round := func(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
	p50, p99 := sorted[len(sorted)/2], sorted[(len(sorted)-1)*99/100]
	ttl := max((shortest * p99).Round(time.Millisecond), time.Millisecond)
	f := Finding{Check: "latency", Severity: OK, Found: fmt.Sprintf(
		"of %d renewals half took up to %v, 99 of 100 up to %v: enough for TTLs from %v",
		len(sorted), round(p50), round(p99), ttl)}
	if ttl > holdfast.DefaultTTL/5 {
		f.Severity = Warning
		f.Risk = fmt.Sprintf("with a TTL below %v a few slow answers lose a lock; the default is %v", ttl, holdfast.DefaultTTL)
		f.Remedy = "look for what slows the server or the way to it, and use long TTLs"
	}
	return f
}
