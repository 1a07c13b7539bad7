//go:build soak

package bench

import (
	"context"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestPeersExclude lets every peer of every store lock twice: each must open, and each must exclude.
func TestPeersExclude(t *testing.T) {
	for _, s := range stores {
		t.Run(s.name, func(t *testing.T) {
			addr, _ := starts[s.name](t)
			for _, p := range s.all() {
				t.Run(p.name, func(t *testing.T) { excludes(t, p, addr) })
			}
		})
	}
}

func excludes(t *testing.T, p peer, addr string) {
	lock, err := p.open(t.Context(), addr)
	testserver.Must(t, err)
	h, err := lock(t.Context(), p.name)
	testserver.Must(t, err)
	if p.can&(hot|crowd) != 0 { // the floor does not wait
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := lock(ctx, p.name); err == nil {
			t.Error("locked twice")
		}
	}
	testserver.Must(t, h.release())
	if h, err = lock(t.Context(), p.name); err != nil {
		t.Fatalf("after the release: %v", err)
	}
	testserver.Must(t, h.release())
}

// TestEveryWorkloadMeasures runs each workload for a moment, with two processes of few clients.
func TestEveryWorkloadMeasures(t *testing.T) {
	for _, s := range []*store{&redisStore, &filesStore} {
		addr, _ := starts[s.name](t)
		for _, w := range workloads {
			w.workers, w.clients, w.processes, w.window = min(w.workers, 20), min(w.clients, 20), min(w.processes, 2), 200*time.Millisecond
			got := measure(t, s, w, settings{reps: 1, peers: []string{oursName}}, func() (string, func()) { return addr, func() {} })
			r := got[oursName][0]
			if r.Failure != "" || r.Overlaps > 0 || r.Stuck > 0 {
				t.Errorf("%s: %d failures (%s), %d overlaps, %d stuck", w.name, r.Failures, r.Failure, r.Overlaps, r.Stuck)
			}
			if r.PerSecond == 0 && r.Drain == 0 {
				t.Errorf("%s: nothing was measured: %+v", w.name, r)
			}
			if len(r.Holds) != w.workers*w.processes || w.kind == wait && slices.Max(r.Holds) != 1 {
				t.Errorf("%s: holds %v", w.name, r.Holds)
			}
			if s.work != nil && w.kind == crowd && r.PerChange < 1 {
				t.Errorf("%s: %v commands for an owner change", w.name, r.PerChange)
			}
			var text strings.Builder
			if got.print(&text, s, w, oursName); !strings.Contains(text.String(), "| holdfast | ") {
				t.Errorf("%s: the table has no line of ours:\n%s", w.name, &text)
			}
		}
	}
}

func TestArenaSeesOverlaps(t *testing.T) {
	file := filepath.Join(t.TempDir(), "arena")
	one, err := openArena(file)
	testserver.Must(t, err)
	two, err := openArena(file)
	testserver.Must(t, err)
	one.stage.Store(measured)
	if first, same, other := one.enter(1, 0), two.enter(1, 0), two.enter(2, 0); first != 0 || same != 0 || other <= 0 {
		t.Errorf("gaps of %v before the first hold, %v before one of the same worker, %v before another's", first, same, other)
	}
	if c, o := one.changes.Load(), one.overlaps.Load(); c != 2 || o != 0 {
		t.Errorf("%d changes and %d overlaps of three holds by two workers, want 2 and 0", c, o)
	}
	one.inside.Store(1) // a worker is in its critical section
	two.enter(3, 0)
	if o := one.overlaps.Load(); o != 1 {
		t.Errorf("%d overlaps, want 1", o)
	}
}

func TestFigures(t *testing.T) {
	for _, c := range []struct {
		shares []int64
		want   float64
	}{{[]int64{5, 5, 5, 5}, 1}, {[]int64{8, 0, 0, 0}, 0.25}, {nil, 0}} {
		if got := jain(c.shares); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("jain(%v) = %v, want %v", c.shares, got, c.want)
		}
	}
	if low, mid, high := spread([]float64{4, 1, 3, 2}); low != 1 || mid != 2.5 || high != 4 {
		t.Errorf("spread = %v %v %v", low, mid, high)
	}
	r := joined([]result{{Holds: []int64{4, 4}, Waits: []time.Duration{1, 1}, Failures: 1, Failure: "first"},
		{Holds: []int64{4, 0}, Waits: []time.Duration{1, 2 * time.Second}, Stuck: 1}})
	if r.Starved != 1 || r.P99 != 2*time.Second || r.P50 != 1 || r.Fairness != 0.75 || r.Failure != "first" || r.Stuck != 1 {
		t.Errorf("joined: %+v", r)
	}
	r.PerSecond = 4
	if got := overFairShare(r); got != 0 {
		t.Errorf("with one of four starved p99 ÷ fair share is %v, want 0: unknown", got)
	}
	if r.Starved = 0; overFairShare(r) != 2 { // four changes a second among four are a second each
		t.Errorf("p99 ÷ fair share is %v, want 2", overFairShare(r))
	}
	if got := since(reading{at: time.Unix(0, 0)}, reading{served{commands: 8}, time.Unix(4, 0)}); got.Commands != 2 {
		t.Errorf("8 commands in 4 s are %+v", got)
	}
	for _, bad := range []string{"HOLDFAST_BENCH_REPS=0", "HOLDFAST_BENCH_WINDOW=2"} {
		name, value, _ := strings.Cut(bad, "=")
		_, err := settingsOf(func(n string) string { return map[string]string{name: value}[n] }, 1, time.Second)
		if err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: error %v", bad, err)
		}
	}
}

// TestCrashMeasures kills two holders, and sees both names free.
func TestCrashMeasures(t *testing.T) {
	for _, s := range []*store{&redisStore, &filesStore} {
		addr, _ := starts[s.name](t)
		got, err := crash(t, s, addr, time.Second, time.Second, 2)
		if err != nil || len(got.freed) != 2 || slices.Min(got.freed) <= 0 || s.work != nil && got.requests <= 0 {
			t.Errorf("%s: %+v, %v", s.name, got, err)
		}
	}
	_, err := crash(t, &redisStore, "127.0.0.1:1", time.Second, time.Second, 1)
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("without a server: %v, want what the holder said", err)
	}
}
