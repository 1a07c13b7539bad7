package hostclock

import (
	"testing"
	"time"
)

func TestSuspendCounter(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name       string
		mono, wall []time.Duration
		want       []time.Duration
	}{
		{"both run", []time.Duration{0, s, 2 * s}, []time.Duration{0, s, 2 * s},
			[]time.Duration{0, s, 2 * s}},
		{"an hour of sleep counts", []time.Duration{s, 2 * s}, []time.Duration{s, 2*s + time.Hour},
			[]time.Duration{s, 2*s + time.Hour}},
		{"and only once", []time.Duration{s, 2 * s, 3 * s},
			[]time.Duration{s, 2*s + time.Hour, 3*s + time.Hour},
			[]time.Duration{s, 2*s + time.Hour, 3*s + time.Hour}},
		{"a wall clock set back does not", []time.Duration{s, 2 * s, 3 * s},
			[]time.Duration{s, -time.Hour, -time.Hour + s}, []time.Duration{s, 2 * s, 3 * s}},
		{"sleep after a step back counts", []time.Duration{s, 2 * s, 3 * s},
			[]time.Duration{s, 2*s - time.Hour, 3 * s}, []time.Duration{s, 2 * s, 3*s + time.Hour}},
		{"slewing does not", []time.Duration{s, 2 * s},
			[]time.Duration{s, 2*s + 20*time.Millisecond}, []time.Duration{s, 2 * s}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var counter suspendCounter
			for i := range c.mono {
				if got := counter.now(c.mono[i], c.wall[i]); got != c.want[i] {
					t.Errorf("reading %d: %v, want %v", i, got, c.want[i])
				}
			}
		})
	}
}

func TestHostClockRuns(t *testing.T) {
	a := Now()
	start := time.Now()
	time.Sleep(20 * time.Millisecond)
	passed, got := time.Since(start), time.Duration(Now()-a)
	if got < 20*time.Millisecond || got > passed+time.Second {
		t.Errorf("the host's clock says %v have passed, package time %v", got, passed)
	}
}
