package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/memlock"
)

// realClient is a client on the host's clock.
func realClient(t testing.TB, s *memlock.Store) *holdfast.Client {
	t.Helper()
	c, err := holdfast.New(s.Client(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// In real time, on the host's clock and the system's timer: short leases are renewed, and end if
// they are not.
func TestOnTheHostClock(t *testing.T) {
	c := realClient(t, memlock.NewStore(nil))
	ctx := t.Context()
	const ttl = time.Second // long beside the pauses of a loaded machine
	o := &holdfast.Options{TTL: ttl}
	renewed, err := c.Mutex("renewed", o).Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	o = &holdfast.Options{TTL: 200 * time.Millisecond, RenewEvery: -1}
	fixed, err := c.Mutex("fixed", o).Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	<-fixed.Done()
	if !errors.Is(fixed.Err(), holdfast.ErrLost) {
		t.Errorf("the fixed lease: %v", fixed.Err())
	}
	time.Sleep(ttl)
	if err := renewed.Err(); err != nil {
		t.Errorf("the renewed lease: %v", err)
	}
	if err := renewed.Release(); err != nil {
		t.Error(err)
	}
}

// P9: an uncontended acquire and release make at most 8 allocations.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Log("not counted under the race detector, which allocates itself")
		return
	}
	l := realClient(t, memlock.NewStore(nil)).Mutex("x", nil)
	n := testing.AllocsPerRun(1000, func() {
		lease, err := l.Acquire(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(); err != nil {
			t.Fatal(err)
		}
	})
	if n > 8 {
		t.Errorf("%v allocations for an uncontended acquire and release, at most 8 are right", n)
	}
}

// BenchmarkUncontended measures an uncontended acquire and release, beside the same two calls of
// the driver.
func BenchmarkUncontended(b *testing.B) {
	store := memlock.NewStore(nil)
	ctx := context.Background()
	b.Run("floor", func(b *testing.B) {
		d := store.Client()
		defer d.Close()
		b.ReportAllocs()
		for b.Loop() {
			g, err := d.Try(ctx, driver.Request{Name: "x", Owner: "me", TTL: time.Second})
			if err != nil {
				b.Fatal(err)
			}
			if err := d.Release(ctx, []driver.Grant{g})[0]; err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("lease", func(b *testing.B) {
		l := realClient(b, store).Mutex("x", nil)
		b.ReportAllocs()
		for b.Loop() {
			lease, err := l.Acquire(ctx)
			if err != nil {
				b.Fatal(err)
			}
			if err := lease.Release(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
