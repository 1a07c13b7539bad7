package sqltest

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// must ends the test at an error.
var must = testserver.Must

// OpenURL opens the driver of a URL.
func OpenURL(ctx context.Context, raw string) (driver.Driver, error) {
	u, err := driver.ParseURL(raw)
	if err != nil {
		return nil, err
	}
	return driver.Open(ctx, u)
}

// Exec runs a statement on a pool, a connection or a transaction, and ends the test at an error.
func Exec(t testing.TB, on interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, text string, args ...any) {
	t.Helper()
	if _, err := on.ExecContext(t.Context(), text, args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

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
	must(t, errs...)
	for _, d := range drivers {
		defer d.Close()
		if first, store := drivers[0].Caps().Store, d.Caps().Store; store != first {
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

// ClockBack: the server's clock is set back by an hour while names are held; ahead makes
// the rows as they are then, with times that lie in the future. A release frees at once,
// alone and in a batch, and tokens go on from those in the rows.
func ClockBack(t *testing.T, d driver.Driver, ahead func(by time.Duration)) {
	t.Helper()
	defer d.Close()
	var grants []driver.Grant
	for i := range 4 {
		r := driver.Request{Name: fmt.Sprintf("back/%d", i), Owner: fmt.Sprintf("%x", rand.Uint64()), TTL: 30 * time.Second}
		g, err := d.Try(t.Context(), r)
		must(t, err)
		grants = append(grants, g)
	}
	ahead(time.Hour)
	for _, batch := range [][]driver.Grant{grants[:1], grants[1:3], grants[3:]} {
		if len(batch) == 1 && batch[0].Name == "back/3" {
			batch[0].Stray = true // the store has to remember it, in a record
		}
		for _, err := range d.Release(t.Context(), batch) {
			if err != nil {
				t.Errorf("P4: Release after the clock was set back: %v", err)
			}
		}
	}
	for _, g := range grants {
		last := g.Token + driver.Token(time.Hour.Microseconds())
		g.Owner = fmt.Sprintf("%x", rand.Uint64())
		next, err := d.Try(t.Context(), g.Request)
		if err != nil {
			t.Errorf("P5: the clock was set back by an hour, and a release of %s did not free it: %v", g.Name, err)
			continue
		}
		if next.Token <= last {
			t.Errorf("P3: the clock was set back by an hour, and token %d follows up to %d", next.Token, last)
		}
		d.Release(t.Context(), []driver.Grant{next})
	}
}
