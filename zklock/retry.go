package zklock

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// retryPolicy says how long to pause before a call is made again, and whether it is: after so many retries, and so long
// after the call began. It is one of Apache Curator's.
type retryPolicy func(retries int, elapsed time.Duration) (pause time.Duration, again bool)

const (
	defaultRetry = "exponential:50ms:5"

	longestRetry = 24 * time.Hour // of anything: a pause, or the time until when
	mostRetries  = 1_000_000
	mostDoubled  = 29 // the exponential policy's retries, as Curator bounds them
)

// parseRetry reads a policy as doc.go lists them. The exponential one pauses, before the n-th retry, counted from 0, for
// BASE times a random number from 1 up to 2^(n+1), without the upper bound itself. Durations are above 0 and up to a
// day; of N there are up to a million, with the exponential policy up to 29.
func parseRetry(text string) (retryPolicy, error) {
	name, rest, _ := strings.Cut(text, ":")
	fields := strings.Split(rest, ":")
	if text == name {
		fields = nil
	}
	form, ok := map[string]string{"none": "", "once": "d", "times": "nd", "elapsed": "dd", "forever": "d", "exponential": "dn"}[name]
	if name == "exponential" && len(fields) == 3 {
		form = "dnd"
	}
	switch {
	case !ok:
		return nil, fmt.Errorf("retry policy %q: none of none, once, times, elapsed, forever and exponential", text)
	case len(fields) != len(form):
		return nil, fmt.Errorf("retry policy %q: %d values after the name, want %d", text, len(fields), len(form))
	}
	var d []time.Duration
	n := 0
	for i, field := range fields {
		if form[i] == 'n' {
			v, err := strconv.Atoi(field)
			if err != nil || v < 0 || v > mostRetries || name == "exponential" && v > mostDoubled {
				return nil, fmt.Errorf("retry policy %q: %q is no number of retries", text, field)
			}
			n = v
			continue
		}
		v, err := time.ParseDuration(field)
		if err != nil || v <= 0 || v > longestRetry {
			return nil, fmt.Errorf("retry policy %q: %q is no duration above 0 and up to a day", text, field)
		}
		d = append(d, v)
	}
	switch name {
	case "once":
		n = 1
		fallthrough
	case "times":
		return func(retries int, _ time.Duration) (time.Duration, bool) { return d[0], retries < n }, nil
	case "elapsed":
		return func(_ int, elapsed time.Duration) (time.Duration, bool) { return d[1], elapsed < d[0] }, nil
	case "forever":
		return func(int, time.Duration) (time.Duration, bool) { return d[0], true }, nil
	case "exponential":
		base, most := d[0], append(d, longestRetry)[1]
		return func(retries int, _ time.Duration) (time.Duration, bool) {
			factor := max(1, rand.Int64N(1<<(min(max(retries, 0), mostDoubled)+1)))
			if int64(most/base) < factor {
				return most, retries < n
			}
			return base * time.Duration(factor), retries < n
		}, nil
	}
	return func(int, time.Duration) (time.Duration, bool) { return 0, false }, nil // none
}
