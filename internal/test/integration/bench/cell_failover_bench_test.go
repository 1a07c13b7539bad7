//go:build soak

package bench

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// BenchmarkCellFailover kills the leader of three members (kill -9), again and again, and reports how long it
// takes from then on until a client gets a free lock: one that was at the leader, and one that was at another
// member. Members wait for a second before they elect another leader, as they do if nobody tells them
// otherwise. There are 100 kills, some 5 s each. Run it with -benchtime 1x.
func BenchmarkCellFailover(b *testing.B) {
	const kills = 100
	cell := testserver.StartCell(b, testserver.CellOptions{Members: 3})
	for b.Loop() {
		var atLeader, elsewhere []time.Duration
		for range kills {
			leader := cell.Leader()
			near, far := failoverClient(b, cell, leader), failoverClient(b, cell, cell.Followers()[0])
			granted := make(chan time.Duration, 2)
			leader.Kill()
			killed := time.Now()
			go func() { granted <- firstGrant(b, near, "near", killed) }()
			elsewhere = append(elsewhere, firstGrant(b, far, "far", killed))
			atLeader = append(atLeader, <-granted)
			near.Close()
			far.Close()
			leader.Start()
			cell.Leader()
		}
		reportSpread(b, atLeader, "at-leader")
		reportSpread(b, elsewhere, "elsewhere")
	}
	b.ReportMetric(0, "ns/op") // of all kills together: says nothing
}

// failoverClient opens a client that asks a certain member first, and lets it take a lock there.
func failoverClient(b *testing.B, cell *testserver.Cell, first *testserver.CellMember) *holdfast.Client {
	b.Helper()
	addrs := first.Addr
	for _, m := range cell.Members {
		if m != first {
			addrs += "," + m.Addr
		}
	}
	c, err := holdfast.Open(b.Context(), "cell://"+addrs)
	if err != nil {
		b.Fatal(err)
	}
	lease, err := c.Mutex("before", nil).Acquire(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	if err := lease.Release(); err != nil {
		b.Fatal(err)
	}
	return c
}

// firstGrant asks for a free lock until it is granted, and returns how long after an instant that was.
func firstGrant(b *testing.B, c *holdfast.Client, name string, since time.Time) time.Duration {
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	for {
		lease, err := c.Mutex(name, nil).Acquire(ctx)
		if err == nil {
			took := time.Since(since)
			lease.ReleaseNow()
			return took
		}
		if ctx.Err() != nil {
			b.Errorf("no grant within a minute: %v", err)
			return time.Minute
		}
	}
}

// reportSpread reports the median and the 99th percentile in milliseconds.
func reportSpread(b *testing.B, times []time.Duration, of string) {
	slices.Sort(times)
	at := func(percent int) float64 {
		return float64(times[(len(times)*percent+99)/100-1].Microseconds()) / 1000
	}
	b.ReportMetric(at(50), of+"-p50-ms")
	b.ReportMetric(at(99), of+"-p99-ms")
	b.ReportMetric(at(100), of+"-max-ms")
}
