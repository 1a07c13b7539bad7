//go:build soak

package bench

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestPeersExclude lets every peer of every store lock twice: each must open, and each must
// exclude.
func TestPeersExclude(t *testing.T) {
	for name, addr := range map[string]string{
		"files": t.TempDir(),
		"redis": testserver.StartRedis(t, testserver.RedisOptions{}).Addr, "postgres": startPostgres(t).Addr,
		"mariadb": startMariaDB(t).Addr, "mysql": startMySQL(t).Addr, "sqlite": t.TempDir() + "/locks.db",
	} {
		t.Run(name, func(t *testing.T) {
			for _, s := range []*store{stores[name], crowdStores[name]} {
				if s != nil {
					peersExclude(t, s, addr)
				}
			}
		})
	}
}

func peersExclude(t *testing.T, s *store, addr string) {
	for _, p := range s.peers {
		t.Run(p.name, func(t *testing.T) {
			l, err := p.open(t.Context(), addr)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			unlock, err := l.Lock(t.Context(), p.name)
			if err != nil {
				t.Fatal(err)
			}
			if p.name != s.floor && !slices.Contains(p.skips, "hot") { // those do not wait, or wait for ever
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				if _, err := l.Lock(ctx, p.name); err == nil {
					t.Error("locked twice")
				}
			}
			if err := unlock(); err != nil {
				t.Fatal(err)
			}
			if unlock, err = l.Lock(t.Context(), p.name); err != nil {
				t.Fatalf("after the release: %v", err)
			}
			if err := unlock(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestEveryWorkloadMeasures(t *testing.T) {
	server := startPostgres(t) // starting one takes long
	for store, start := range map[string]func() (string, func()){
		"redis": func() (string, func()) {
			server := testserver.StartRedis(t, testserver.RedisOptions{})
			return server.Addr, server.Kill
		},
		"postgres": func() (string, func()) { return server.Addr, func() {} },
	} {
		t.Run(store, func(t *testing.T) { everyWorkload(t, stores[store], start) })
	}
}

func everyWorkload(t *testing.T, s *store, start func() (string, func())) {
	only := *s
	only.peers = nil
	for _, name := range []string{s.floor, s.ours} {
		p, err := s.peer(name)
		if err != nil {
			t.Fatal(err)
		}
		only.peers = append(only.peers, p)
	}
	window := testserver.Long(200*time.Millisecond, time.Second)
	for _, w := range workloads {
		w.workers, w.clients, w.window, w.reps = min(w.workers, 20), min(w.clients, 20), window, 1
		got, err := measure(&only, w, settings{reps: 1, window: window}, t.TempDir(), start)
		if err != nil {
			t.Fatalf("%s: %v", w.name, err)
		}
		r := got[s.ours][0]
		// A window of a second may pass before the first of a crowd has released the name.
		if r.PerSecond == 0 && r.P50 == 0 && r.Drain == 0 && r.Bytes == 0 {
			t.Errorf("%s: nothing was measured: %+v", w.name, r)
		}
		if r.Overlaps != 0 || r.Lost != 0 {
			t.Errorf("%s: %d overlaps, %d lost", w.name, r.Overlaps, r.Lost)
		}
		var table strings.Builder
		got.print(&table, s, w, s.ours)
		if !strings.Contains(table.String(), "| holdfast | ") {
			t.Errorf("%s: the table has no line of ours:\n%s", w.name, &table)
		}
	}
}

func TestArenaSeesOverlaps(t *testing.T) {
	file := t.TempDir() + "/arena"
	if err := newArena(file); err != nil {
		t.Fatal(err)
	}
	one, err := openArena(file)
	if err != nil {
		t.Fatal(err)
	}
	two, err := openArena(file)
	if err != nil {
		t.Fatal(err)
	}
	one.stage.Store(measured)
	first, same, other := one.enter(1, 0), two.enter(1, 0), two.enter(2, 0)
	if first != 0 || same != 0 || other <= 0 {
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
	if got := quantile([]time.Duration{3, 1, 2}, 0.5); got != 2 {
		t.Errorf("the median of 1, 2, 3 is %v", got)
	}
	c := 0
	commands, scripts, err := rate(func() (served, error) { c += 3; return served{commands: int64(c)}, nil }, time.Millisecond)
	if commands != 0 || scripts != 0 || err != nil {
		t.Errorf("a server that only answers the questions does %v commands/s (%v)", commands, err)
	}
	if _, _, err := rate(func() (served, error) { return served{}, errors.New("gone") }, time.Millisecond); err == nil {
		t.Error("no error of a server that is gone")
	}
	for _, bad := range []string{"HOLDFAST_BENCH_REPS=0", "HOLDFAST_BENCH_REPS=x", "HOLDFAST_BENCH_WINDOW=2", "HOLDFAST_BENCH_WINDOW=-1s",
		"HOLDFAST_BENCH_CROWDS=64,x", "HOLDFAST_BENCH_CROWDS=1", "HOLDFAST_BENCH_CROWDS=1001"} {
		name, value, _ := strings.Cut(bad, "=")
		_, err := settingsOf(func(n string) string {
			if n == name {
				return value
			}
			return ""
		}, usual)
		if err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: error %v", bad, err)
		}
	}
}
