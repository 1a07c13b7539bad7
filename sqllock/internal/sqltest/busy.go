package sqltest

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

// Busy holds some leases for twice their TTL while many goroutines of the same
// client take and release names of their own, which fills its pool. The leases must
// outlive that: the server is well, and has time for their renewals.
func Busy(t *testing.T, d driver.Driver) {
	t.Helper()
	const leases, workers, ttl = 8, 512, 3 * time.Second
	locks, err := holdfast.New(d, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	held := hold(ctx, t, locks, leases, ttl)
	working, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for i := range workers {
		lock := locks.Mutex(fmt.Sprintf("busy/worker/%d", i), &holdfast.Options{TTL: 30 * time.Second})
		wg.Go(func() {
			for working.Err() == nil {
				lease, err := lock.Acquire(working)
				if err != nil {
					return // it was time to stop
				}
				if err := lease.Release(); err != nil {
					t.Errorf("a release while the pool is full: %v", err)
				}
			}
		})
	}
	outlive(t, held, 2*ttl)
	stop()
	wg.Wait()
}

// Pool is a *sql.DB, or what tells the same of another pool.
type Pool interface {
	Conn(ctx context.Context) (*sql.Conn, error)
	Stats() sql.DBStats
}

// FullPool renews, releases and takes holds while an application has all connections of the
// pool but the reserved one, and does not give them back. The pool allows more than one
// connection. Before that kill, if it is not nil, ends all connections: another must then be
// reserved.
func FullPool(t *testing.T, db Pool, d driver.Driver, kill func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	grants := take(ctx, t, d, "full", driver.Exclusive, 8)
	grants = append(grants, take(ctx, t, d, "full/read", driver.Shared, 4)...)
	if kill != nil {
		kill()
		failed := func(r driver.Renewal) bool { return r.Err != nil }
		for slices.ContainsFunc(d.Renew(ctx, grants), failed) && ctx.Err() == nil {
		}
	}
	for db.Stats().InUse < db.Stats().MaxOpenConnections {
		conn, err := db.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	for i, r := range d.Renew(ctx, grants) {
		if r.Err != nil {
			t.Errorf("P2: renewal %d while an application has the pool: %v", i, r.Err)
		}
	}
	grants = append(grants, take(ctx, t, d, "fuller", driver.Exclusive, 2)...)
	for _, g := range grants {
		if err := d.Release(ctx, []driver.Grant{g})[0]; err != nil {
			t.Errorf("P4: a release while an application has the pool: %v", err)
		}
	}
}

// GivenBack takes a name while an application has all connections of the pool, before one is
// reserved. The driver must get the connection that the application gives back.
func GivenBack(t *testing.T, db Pool, d driver.Driver) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var conns []*sql.Conn
	for db.Stats().InUse < db.Stats().MaxOpenConnections {
		conn, err := db.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	waited := db.Stats().WaitCount
	taken := make(chan error, 1)
	go func() {
		_, err := d.Try(ctx, driver.Request{Name: "back", Owner: "an owner", TTL: time.Second})
		taken <- err
	}()
	for db.Stats().WaitCount == waited && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	conns[0].Close()
	if err := <-taken; err != nil {
		t.Errorf("P7: a connection that an application gave back: %v", err)
	}
}

// FewConnections uses a driver whose server allows it one connection for its pool of
// many.
func FewConnections(t *testing.T, d driver.Driver) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	grants := take(ctx, t, d, "few", driver.Shared, 3)
	for i, r := range d.Renew(ctx, grants) {
		if r.Err != nil {
			t.Errorf("P2: renewal %d over the only connection: %v", i, r.Err)
		}
	}
	for i, err := range d.Release(ctx, grants) {
		if err != nil {
			t.Errorf("P4: release %d over the only connection: %v", i, err)
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// RenewalFirst lets a renewal and many requests for holds wait for the one connection of a
// pool. The renewal must wait for one of the others at most; a few more may be done before
// its goroutine runs.
func RenewalFirst(t *testing.T, db Pool, d driver.Driver) {
	t.Helper()
	const others = 200
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	held := take(ctx, t, d, "first", driver.Exclusive, 1)
	conn, err := db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	before := db.Stats().WaitCount
	waits := func(n int64) {
		for db.Stats().WaitCount < before+n && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
	}
	var done atomic.Int32
	var wg sync.WaitGroup
	seed := rand.Uint64()
	for i := range others {
		wg.Go(func() {
			_, err := d.Try(ctx, driver.Request{Name: fmt.Sprintf("first/%x/%d", seed, i), Owner: fmt.Sprintf("%x %d", seed, i), TTL: time.Minute})
			if err != nil {
				t.Error(err)
			}
			done.Add(1)
		})
	}
	waits(1) // the others wait before the pool
	var behind int32
	wg.Go(func() {
		if err := d.Renew(ctx, held)[0].Err; err != nil {
			t.Errorf("P2: a renewal over a pool of one connection: %v", err)
		}
		behind = done.Load()
	})
	waits(2)
	conn.Close()
	wg.Wait()
	if behind > others/10 {
		t.Errorf("P2: a renewal waited for %d of %d requests for holds", behind, others)
	}
}

// take takes some names by a driver.
func take(ctx context.Context, t *testing.T, d driver.Driver, prefix string, mode driver.Mode, n int) (grants []driver.Grant) {
	t.Helper()
	seed := rand.Uint64() // the store may have been used before
	for i := range n {
		r := driver.Request{Name: fmt.Sprintf("%s/%x/%d", prefix, seed, i), Owner: fmt.Sprintf("%s %x %d", prefix, seed, i), Mode: mode, TTL: time.Minute}
		g, err := d.Try(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		grants = append(grants, g)
	}
	return grants
}

// hold takes some names.
func hold(ctx context.Context, t *testing.T, locks *holdfast.Client, n int, ttl time.Duration) (held []*holdfast.Lease) {
	t.Helper()
	for i := range n {
		lease, err := locks.Mutex(fmt.Sprintf("busy/%d", i), &holdfast.Options{TTL: ttl}).Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, lease)
	}
	return held
}

// outlive waits, and fails if one of the leases is lost.
func outlive(t *testing.T, held []*holdfast.Lease, d time.Duration) {
	t.Helper()
	end := time.After(d)
	for i, lease := range held {
		select {
		case <-lease.Done():
			t.Errorf("lease %d of %d was lost: %v", i, len(held), lease.Err())
		case <-end:
			end = nil
			for i, lease := range held {
				if err := lease.Err(); err != nil {
					t.Errorf("lease %d of %d was lost: %v", i, len(held), err)
				}
			}
			return
		}
	}
}
