package sqltest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

// StartTogether opens drivers at the same time on a store without tables. All must open, and
// agree on the store's name.
func StartTogether(t *testing.T, open func() (driver.Driver, error)) {
	t.Helper()
	const clients = 20
	drivers, errs := make([]driver.Driver, clients), make([]error, clients)
	begin := make(chan struct{})
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			<-begin
			drivers[i], errs[i] = open()
		})
	}
	close(begin)
	wg.Wait()
	first := ""
	for i, d := range drivers {
		if errs[i] != nil {
			t.Errorf("client %d of %d that start together: %v", i, clients, errs[i])
			continue
		}
		defer d.Close()
		if first == "" {
			first = d.Caps().Store
		}
		if store := d.Caps().Store; store != first {
			t.Errorf("clients that start together call the store %q and %q", first, store)
		}
	}
}

// OneConnection does many things at a time with a driver whose pool has one connection:
// holders, waiters, renewals and polls must not wait for each other for ever.
func OneConnection(t *testing.T, d driver.Driver) {
	t.Helper()
	locks, err := holdfast.New(d, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	inside := make([]int, 4)
	for i := range 16 {
		lock := locks.Mutex(fmt.Sprintf("one/%d", i%4), &holdfast.Options{TTL: 2 * time.Second})
		wg.Go(func() {
			for range 5 {
				err := lock.Do(ctx, func(ctx context.Context, l *holdfast.Lease) error {
					inside[i%4]++
					return l.Renew(ctx)
				})
				if err != nil {
					t.Errorf("P7: over one connection: %v", err)
				}
			}
		})
	}
	wg.Wait()
	for _, n := range inside {
		if n != 20 {
			t.Errorf("P1: of 20 updates under a lock %d are there", n)
		}
	}
}

// Outage holds a lock and waits for it while connections or the server are lost and come
// back. The holder must keep its hold, and the waiter must get it afterwards.
func Outage(t *testing.T, holder, waiter driver.Driver, outage func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a, err := holdfast.New(holder, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := holdfast.New(waiter, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	o := &holdfast.Options{TTL: 20 * time.Second}
	lease, err := a.Mutex("outage", o).Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	next := make(chan error, 1)
	var token holdfast.Token
	go func() {
		l, err := b.Mutex("outage", o).Acquire(ctx)
		if err == nil {
			token = l.Token()
			err = l.Release()
		}
		next <- err
	}()
	for info, err := a.Inspect(ctx, "outage"); len(info.Waiters) == 0; info, err = a.Inspect(ctx, "outage") {
		if err != nil {
			t.Fatal(err)
		}
	}
	outage()
	for lease.Renew(ctx) != nil && ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
	}
	if err := lease.Err(); err != nil {
		t.Errorf("P1: a hold did not outlive the outage: %v", err)
	}
	select {
	case err := <-next:
		t.Fatalf("P1: the waiter's Acquire returned %v while the lock was held", err)
	default:
	}
	if err := lease.Release(); err != nil && !errors.Is(err, holdfast.ErrUncertain) {
		t.Errorf("P4: release after the outage: %v", err)
	}
	if err := <-next; err != nil {
		t.Errorf("P7: the waiter after the outage: %v", err)
	}
	if token <= lease.Token() {
		t.Errorf("P3: the next token is %d after %d", token, lease.Token())
	}
}

// Standstill pauses the store beyond the TTL of a hold. The holder must know that it
// has lost before another gets the name.
func Standstill(t *testing.T, holder, other driver.Driver, pause, resume func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a, err := holdfast.New(holder, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := holdfast.New(other, nil)
	if err != nil {
		t.Fatal(err)
	}
	const ttl = 2 * time.Second
	lease, err := a.Mutex("standstill", &holdfast.Options{TTL: ttl}).Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	pause()
	select {
	case <-lease.Done():
	case <-time.After(2 * ttl):
		t.Error("P2: a lease outlived its TTL while its store stood still")
	}
	resume()
	next, err := b.Mutex("standstill", &holdfast.Options{TTL: ttl}).Acquire(ctx)
	if err != nil {
		t.Fatalf("P5: Acquire after the standstill: %v", err)
	}
	if next.Token() <= lease.Token() {
		t.Errorf("P3: the next token is %d after %d", next.Token(), lease.Token())
	}
	next.Release()
	lease.Release()
	b.Close()
	a.Close()
}
