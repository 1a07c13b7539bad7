package sqltest

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// openAll opens drivers, each with connections of its own.
func openAll(t *testing.T, n int, open func() driver.Driver) []driver.Driver {
	t.Helper()
	all := make([]driver.Driver, n)
	for i := range all {
		all[i] = open()
	}
	return all
}

// Crowd lets many clients want one name, again and again: most exclusively, some shared, some for
// a moment only. Each gets it as often as it asks (P7), and alone unless it shares (P1).
func Crowd(t *testing.T, clients, rounds int, open func() driver.Driver) {
	t.Helper()
	testserver.TakeTurn(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	var writers, readers, wrote atomic.Int32
	done, last := 0, holdfast.Token(0) // which only the exclusive lock protects
	for i, d := range openAll(t, clients, open) {
		locks, err := holdfast.New(d, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close()
		lock := locks.RWMutex("crowd", nil)
		wg.Go(func() {
			for round := range rounds {
				if (i+round)%7 == 0 { // its place is withdrawn, or inherited by the next request
					moment, cancel := context.WithTimeout(ctx, time.Duration(i)*time.Millisecond)
					if lease, err := lock.Write.Acquire(moment); err == nil {
						lease.Release()
					} else if !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("P11: an impatient client: %v", err)
					}
					cancel()
				}
				wanted := lock.Write
				if i%8 == 0 {
					wanted = lock.Read
				}
				err := wanted.Do(ctx, func(ctx context.Context, l *holdfast.Lease) error {
					if i%8 == 0 {
						readers.Add(1)
						defer readers.Add(-1)
						if writers.Load() > 0 {
							t.Error("P1: a reader has the lock beside a writer")
						}
						return nil
					}
					if writers.Add(1) > 1 || readers.Load() > 0 {
						t.Error("P1: a writer has the lock beside another client")
					}
					defer writers.Add(-1)
					if l.Token() <= last {
						t.Errorf("P3: token %d comes after %d", l.Token(), last)
					}
					last = l.Token()
					done++
					wrote.Add(1) // here: the release may fail, and the update is there
					return nil
				})
				if err != nil {
					t.Errorf("P7: client %d in round %d: %v", i, round, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if want := int(wrote.Load()); done != want {
		t.Errorf("P1: of %d updates under the lock %d are there", want, done)
	}
}

// DeadCrowd lets a client wait behind a hundred that are killed together. When the holder releases
// the name they delay it by three polls at most (P7).
func DeadCrowd(t *testing.T, open func() driver.Driver) {
	t.Helper()
	testserver.TakeTurn(t)
	const dead = 100
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	holder := open()
	defer holder.Close()
	const name = "dead crowd"
	g, err := holder.Try(ctx, driver.Request{Name: name, Owner: "the holder", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	all := openAll(t, dead, open)
	locks, err := holdfast.New(open(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	var wg sync.WaitGroup
	ofDead := map[string]bool{}
	var requests []driver.Request
	for range all {
		r := driver.Request{Name: name, Owner: rand.Text(), TTL: time.Minute}
		ofDead[r.Owner] = true
		requests = append(requests, r)
	}
	takePlaces := func() {
		for i, d := range all {
			wg.Go(func() {
				if _, err := d.(driver.Queuer).Enqueue(ctx, requests[i]); !errors.Is(err, driver.ErrHeld) {
					t.Errorf("Enqueue on a held name returned %v", err)
				}
			})
		}
		wg.Wait()
	}
	// waiting returns how many of the dead and of the living wait.
	waiting := func() (dead, alive int) {
		info, err := holder.(driver.Operator).Inspect(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range info.Waiters {
			if ofDead[w.Owner] {
				dead++
			} else {
				alive++
			}
		}
		return dead, alive
	}
	for range 10 { // on a busy machine the first places are over before the last are taken, so they are confirmed
		takePlaces()
		if n, _ := waiting(); n >= dead*9/10 {
			break
		}
	}
	if n, _ := waiting(); n < dead*9/10 {
		t.Fatalf("the test is of no use: %d of %d clients wait", n, dead)
	}
	for _, d := range all {
		wg.Go(func() { d.Close() }) // which withdraws nothing
	}
	got := make(chan error, 1)
	go func() {
		lease, err := locks.Mutex(name, nil).Acquire(ctx)
		if err == nil {
			err = lease.Release()
		}
		got <- err
	}()
	for _, alive := waiting(); alive == 0; _, alive = waiting() {
	}
	wg.Wait()
	released := time.Now()
	if err := holder.Release(ctx, []driver.Grant{g})[0]; err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Fatalf("P7: behind dead clients: %v", err)
	}
	if took, bound := time.Since(released), 3*holder.Caps().PollInterval(); took > bound {
		t.Errorf("P7: %d dead clients have delayed a live one by %v, longer than %v", dead, took, bound)
	}
}
