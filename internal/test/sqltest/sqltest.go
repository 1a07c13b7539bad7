package sqltest

import (
	"context"
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

// ManyAtOnce does many things at a time with a driver: holders, waiters, renewals and polls must not wait for
// each other for ever, also over one connection.
func ManyAtOnce(t *testing.T, d driver.Driver) {
	t.Helper()
	locks, err := holdfast.New(d, nil)
	must(t, err)
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
					t.Errorf("P7: one of many: %v", err)
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
