// Package retry says how often, and until when, something is tried again: Apache Curator's policies,
// by their names.
//
// A policy is a value that decides; it neither waits nor keeps the time.
package retry

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// Policy decides whether to try again. The zero value never does. It may be used by many goroutines.
type Policy struct {
	text string
	next func(retries int, elapsed time.Duration) (time.Duration, bool)
}

// Next says how long to pause before the next try, and whether there is to be one: after so many
// tries that followed the first one, and so long after the first one began.
func (p Policy) Next(retries int, elapsed time.Duration) (pause time.Duration, again bool) {
	if p.next == nil {
		return 0, false
	}
	return p.next(retries, elapsed)
}

// String returns what Parse reads.
func (p Policy) String() string {
	if p.next == nil {
		return "none"
	}
	return p.text
}

const (
	longest     = 24 * time.Hour // of anything: a pause, or the time until when
	mostRetries = 1_000_000
	mostDoubled = 29 // the exponential policy's retries, as Curator bounds them
)

// Parse reads one of
//
//	none                         never again
//	once:PAUSE                   RetryOneTime
//	times:N:PAUSE                RetryNTimes
//	elapsed:LONGEST:PAUSE        RetryUntilElapsed: as long as less than LONGEST has passed
//	forever:PAUSE                RetryForever
//	exponential:BASE:N           ExponentialBackoffRetry: before the n-th retry, counted from 0, BASE times
//	                             a random number from 1 up to 2^(n+1), without the upper bound itself
//	exponential:BASE:N:LONGEST   BoundedExponentialBackoffRetry: no pause is above LONGEST
//
// Durations are as [time.ParseDuration] reads them, above 0 and up to a day; of N there are up to a
// million, with the exponential policies up to 29.
func Parse(text string) (Policy, error) {
	p, err := parse(text)
	if err != nil {
		return Policy{}, fmt.Errorf("retry policy %q: %w", text, err)
	}
	return p, nil
}

func parse(text string) (Policy, error) {
	name, rest, _ := strings.Cut(text, ":")
	var fields []string
	if rest != "" || strings.Contains(text, ":") {
		fields = strings.Split(rest, ":")
	}
	forms := map[string]string{
		"none": "", "once": "d", "times": "nd", "elapsed": "dd", "forever": "d", "exponential": "dn",
	}
	form, ok := forms[name]
	if name == "exponential" && len(fields) == 3 {
		form = "dnd"
	}
	switch {
	case !ok:
		return Policy{}, fmt.Errorf("none of none, once, times, elapsed, forever and exponential")
	case len(fields) != len(form):
		return Policy{}, fmt.Errorf("%d values after the name, want %d", len(fields), len(form))
	}
	var d []time.Duration
	n := 0
	for i, field := range fields {
		if form[i] == 'n' {
			v, err := strconv.Atoi(field)
			if err != nil || v < 0 || v > mostRetries || name == "exponential" && v > mostDoubled {
				return Policy{}, fmt.Errorf("%q is no number of retries", field)
			}
			n = v
			continue
		}
		v, err := time.ParseDuration(field)
		if err != nil || v <= 0 || v > longest {
			return Policy{}, fmt.Errorf("%q is no duration above 0 and up to a day", field)
		}
		d = append(d, v)
	}
	p := Policy{text: text}
	switch {
	case name == "none":
		return Policy{}, nil
	case name == "once":
		p.next = times(1, d[0])
	case name == "times":
		p.next = times(n, d[0])
	case name == "elapsed":
		p.next = func(_ int, elapsed time.Duration) (time.Duration, bool) { return d[1], elapsed < d[0] }
	case name == "forever":
		p.next = func(int, time.Duration) (time.Duration, bool) { return d[0], true }
	case len(d) == 2:
		p.next = exponential(d[0], n, d[1])
	default:
		p.next = exponential(d[0], n, longest)
	}
	return p, nil
}

func times(n int, pause time.Duration) func(int, time.Duration) (time.Duration, bool) {
	return func(retries int, _ time.Duration) (time.Duration, bool) { return pause, retries < n }
}

func exponential(base time.Duration, n int, most time.Duration) func(int, time.Duration) (time.Duration, bool) {
	return func(retries int, _ time.Duration) (time.Duration, bool) {
		factor := max(1, rand.Int64N(1<<(min(max(retries, 0), mostDoubled)+1)))
		if int64(most/base) < factor {
			return most, retries < n
		}
		return base * time.Duration(factor), retries < n
	}
}
