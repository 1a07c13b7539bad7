//go:build linux || darwin || freebsd

package doctor

import (
	"testing"
	"time"
)

func TestJudgeClocks(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name             string
		mono, wall, host time.Duration
		year             int
		want             Severity
	}{
		{"all run alike", 250 * ms, 250 * ms, 251 * ms, 2026, OK},
		{"the host's stands", 250 * ms, 250 * ms, 0, 2026, Error},
		{"the host's is too fast", 250 * ms, 250 * ms, 500 * ms, 2026, Error},
		{"all stand", 0, 0, 0, 2026, Error},
		{"the wall clock is set", 250 * ms, -time.Hour, 250 * ms, 2026, Warning},
		{"the wall clock was never set", 250 * ms, 250 * ms, 250 * ms, 1970, Warning},
	} {
		f := judgeClocks(c.mono, c.wall, c.host, c.year)
		if f.Severity != c.want || (f.Severity != OK) != (f.Risk != "" && f.Remedy != "") {
			t.Errorf("%s: %+v, want %s", c.name, f, c.want)
		}
	}
}

func TestJudgeSpace(t *testing.T) {
	for _, c := range []struct {
		bytes, files, left uint64
		want               Severity
	}{
		{1 << 40, 1 << 20, 1 << 19, OK}, {1 << 40, 0, 0, OK}, {1 << 20, 1 << 20, 1 << 19, Warning}, {1 << 40, 1 << 20, 3, Warning},
	} {
		if f := judgeSpace("/x", c.bytes, c.files, c.left); f.Severity != c.want || (f.Severity != OK) != (f.Risk != "" && f.Remedy != "") {
			t.Errorf("%+v: %+v", c, f)
		}
	}
}
