package retry

import (
	"testing"
	"time"
)

// run tries something that never works, each try for so long, in virtual time. It returns how often
// it was tried again and when the last try began.
func run(p Policy, each time.Duration, most int) (retries int, last time.Duration, pauses []time.Duration) {
	var now time.Duration
	for retries < most {
		now += each
		pause, again := p.Next(retries, now)
		if !again {
			break
		}
		now += pause
		last = now
		pauses = append(pauses, pause)
		retries++
	}
	return retries, last, pauses
}

// How often each policy tries again, and until when.
func TestHowOftenAndUntilWhen(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	for _, c := range []struct {
		text    string
		each    time.Duration
		retries int
		last    time.Duration
	}{
		{"none", s, 0, 0},
		{"once:1s", 0, 1, s},
		{"once:1s", 2 * s, 1, 3 * s},
		{"times:0:1s", 0, 0, 0},
		{"times:3:1s", 0, 3, 3 * s},
		{"times:3:1s", 2 * s, 3, 9 * s},
		{"elapsed:30s:1s", 0, 30, 30 * s}, // at 29 s less than 30 s have passed
		{"elapsed:30s:1s", 4 * s, 6, 30 * s},
		{"elapsed:30s:1s", 30 * s, 0, 0},
		{"elapsed:1s:300ms", 0, 4, 1200 * ms},
		{"forever:10ms", 0, 100_000, 1000 * s},
		{"forever:10ms", s, 100_000, 101_000 * s},
	} {
		p, err := Parse(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if retries, last, _ := run(p, c.each, 100_000); retries != c.retries || last != c.last {
			t.Errorf("%s, each try takes %v: %d retries until %v, want %d until %v", c.text, c.each, retries, last, c.retries, c.last)
		}
		if p.String() != c.text {
			t.Errorf("%s is said as %s", c.text, p)
		}
	}
}

// The exponential policy's pauses are the base times a whole number from 1 up to below 2^(n+1).
func TestExponential(t *testing.T) {
	for _, c := range []struct {
		text    string
		base    time.Duration
		retries int
		most    time.Duration
	}{
		{"exponential:100ms:3", 100 * time.Millisecond, 3, longest},
		{"exponential:100ms:29:5s", 100 * time.Millisecond, 29, 5 * time.Second},
		{"exponential:1ns:29", 1, 29, longest},
		{"exponential:24h:29", 24 * time.Hour, 29, longest},
		{"exponential:10s:2:1s", 10 * time.Second, 2, time.Second},
	} {
		p, err := Parse(c.text)
		if err != nil {
			t.Fatal(err)
		}
		var sum, least, greatest [30]time.Duration
		const runs = 300
		for r := range runs {
			retries, _, pauses := run(p, time.Millisecond, 100)
			if retries != c.retries {
				t.Fatalf("%s: %d retries, want %d", c.text, retries, c.retries)
			}
			for n, pause := range pauses {
				bound := min(c.most, time.Duration(min(float64(c.base)*float64(int64(2)<<n-1), float64(longest))))
				if pause < min(c.base, c.most) || pause > bound || pause%c.base != 0 && pause != c.most {
					t.Fatalf("%s: pause %d is %v, want a multiple of %v up to %v", c.text, n, pause, c.base, bound)
				}
				sum[n] += pause
				if r == 0 || pause < least[n] {
					least[n] = pause
				}
				greatest[n] = max(greatest[n], pause)
			}
		}
		if c.text == "exponential:100ms:3" {
			// Drawn from 0..7 and raised to 1: 3.625 times the base on average, and each value now and then.
			if mean := sum[2] / runs; mean < 300*time.Millisecond || mean > 425*time.Millisecond {
				t.Errorf("the third pause is %v on average", mean)
			}
			if least[2] != 100*time.Millisecond || greatest[2] != 700*time.Millisecond {
				t.Errorf("the third pause is %v to %v", least[2], greatest[2])
			}
		}
	}
}

func TestZeroPolicy(t *testing.T) {
	if pause, again := (Policy{}).Next(0, 0); pause != 0 || again || (Policy{}).String() != "none" {
		t.Errorf("%v, %v, %s", pause, again, Policy{})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{
		"", "never", "none:", "none:1s", "once", "once:", "once:x", "once:0", "once:-1s", "once:25h", "once:1s:1s",
		"times:3", "times:-1:1s", "times:1000001:1s", "times:x:1s", "times:1s:3", "elapsed:30s", "elapsed:30s:1s:1s",
		"forever", "forever:", "exponential:1s", "exponential:1s:30", "exponential:1s:3:", "exponential:1s:3:1s:1s", "Once:1s",
	} {
		if p, err := Parse(text); err == nil {
			t.Errorf("%q is taken for %s", text, p)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("exponential:100ms:3:5s", 2, int64(time.Second))
	f.Add("times:3:1s", 3, int64(0))
	f.Fuzz(func(t *testing.T, text string, retries int, elapsed int64) {
		p, err := Parse(text)
		if err != nil {
			return
		}
		if pause, _ := p.Next(retries, time.Duration(elapsed)); pause < 0 || pause > longest {
			t.Errorf("%q pauses for %v", text, pause)
		}
	})
}
