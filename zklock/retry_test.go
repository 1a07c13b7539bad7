package zklock

import (
	"testing"
	"time"
)

// TestRetryPolicies: how often each policy tries again, and until when, if each try takes some time.
func TestRetryPolicies(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	for _, c := range []struct {
		text    string
		each    time.Duration
		retries int
		last    time.Duration
	}{
		{"none", s, 0, 0},
		{"once:1s", 2 * s, 1, 3 * s},
		{"times:3:1s", 2 * s, 3, 9 * s},
		{"elapsed:30s:1s", 0, 30, 30 * s}, // at 29 s less than 30 s have passed
		{"elapsed:30s:1s", 4 * s, 6, 30 * s},
		{"elapsed:1s:300ms", 0, 4, 1200 * ms},
		{"forever:10ms", s, 1000, 1010 * s},
	} {
		next, err := parseRetry(c.text)
		must(t, err)
		retries, now, last := 0, c.each, time.Duration(0)
		for pause, again := next(0, now); again && retries < 1000; pause, again = next(retries, now) {
			last = now + pause
			now = last + c.each
			retries++
		}
		if retries != c.retries || last != c.last {
			t.Errorf("%s, each try takes %v: %d retries until %v, want %d until %v", c.text, c.each, retries, last, c.retries, c.last)
		}
	}
}

// TestExponential: the pauses are the base times a whole number from 1 up to below 2^(n+1), and not above the longest.
func TestExponential(t *testing.T) {
	next, err := parseRetry("exponential:100ms:29:5s")
	must(t, err)
	for n := range 30 {
		pause, again := next(n, 0)
		bound := min(5*time.Second, 100*time.Millisecond*time.Duration(int64(2)<<n-1))
		if again != (n < 29) || pause < 100*time.Millisecond || pause > bound {
			t.Fatalf("pause %d is %v, %v; want at most %v", n, pause, again, bound)
		}
	}
}

func TestRetryRefused(t *testing.T) {
	for _, text := range []string{
		"", "never", "none:", "none:1s", "once", "once:", "once:x", "once:0", "once:-1s", "once:25h", "once:1s:1s",
		"times:3", "times:-1:1s", "times:1000001:1s", "times:x:1s", "times:1s:3", "elapsed:30s", "elapsed:30s:1s:1s",
		"forever", "forever:", "exponential:1s", "exponential:1s:30", "exponential:1s:3:", "exponential:1s:3:1s:1s", "Once:1s",
	} {
		if _, err := parseRetry(text); err == nil {
			t.Errorf("P10: hf.retry=%s is taken", text)
		}
	}
}
