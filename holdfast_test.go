package holdfast_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
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

// Exclusion under real concurrency, in every mode, with goroutines that give up: only the lock
// protects a plain counter (P1), and nothing is left (P6, P9).
func TestConcurrent(t *testing.T) {
	store := memlock.NewStore(nil)
	clients := []*holdfast.Client{realClient(t, store), realClient(t, store), realClient(t, store)}
	var writes, readers, users int // guarded by the locks themselves
	var mu sync.Mutex
	change := func(n *int, by, most int) {
		mu.Lock()
		defer mu.Unlock()
		if *n += by; *n > most {
			t.Errorf("P1: %d at a time, of at most %d", *n, most)
		}
	}
	want, done := 0, make(chan int)
	for i := range 24 {
		c := clients[i%len(clients)]
		go func() {
			n := 0
			for j := range 100 {
				ctx, cancel := context.WithTimeout(t.Context(),
					time.Duration(i*j%7)*time.Millisecond+time.Second*time.Duration(j%2))
				rw := c.RWMutex("rw", nil)
				err := rw.Write.Do(ctx, func(context.Context, *holdfast.Lease) error {
					writes++
					n++
					return nil
				})
				if err == nil && j%3 == 0 {
					err = rw.Read.Do(ctx, func(context.Context, *holdfast.Lease) error {
						_ = writes // for the race detector
						change(&readers, 1, 24)
						change(&readers, -1, 24)
						return nil
					})
				}
				if err == nil {
					err = c.Semaphore("sem", 5, &holdfast.Options{Permits: 2}).Do(ctx, func(context.Context, *holdfast.Lease) error {
						change(&users, 1, 2)
						change(&users, -1, 2)
						return nil
					})
				}
				cancel()
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v", err)
				}
			}
			done <- n
		}()
	}
	for range 24 {
		want += <-done
	}
	if writes != want || want == 0 {
		t.Errorf("P1: %d writes were counted of %d", writes, want)
	}
	for _, name := range []string{"rw", "sem"} {
		until := time.Now().Add(5 * time.Second)
		for {
			info, err := clients[0].Inspect(t.Context(), name)
			if err == nil && info.Idle() {
				break
			}
			if time.Now().After(until) {
				t.Fatalf("P6: %+v is left, %v", info, err)
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// P6: suppose a waiter is granted the hold at the moment at which its context ends. The hold is
// used or given back, never dropped.
func TestGrantMeetsCancellation(t *testing.T) {
	c := realClient(t, memlock.NewStore(nil))
	rw := c.RWMutex("x", nil)
	for range 3000 {
		writer, err := rw.Write.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if l, err := rw.Read.Acquire(ctx); err == nil {
					_ = l.Release()
				}
			})
		}
		runtime.Gosched()
		wg.Go(cancel)
		_ = writer.Release()
		wg.Wait()
	}
	writer, err := rw.Write.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := writer.Release(); err != nil {
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
