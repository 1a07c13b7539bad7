package sqltest

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Pool is a *sql.DB, or what tells the same of another pool.
type Pool interface {
	Conn(ctx context.Context) (*sql.Conn, error)
	Stats() sql.DBStats
}

// FullPool renews and releases holds while an application has all connections of the
// pool but that of renewals, and does not give them back. The pool allows more than one
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
		must(t, err)
		defer conn.Close()
	}
	for i, r := range d.Renew(ctx, grants) {
		if r.Err != nil {
			t.Errorf("P2: renewal %d while an application has the pool: %v", i, r.Err)
		}
	}
	for _, g := range grants {
		if err := d.Release(ctx, []driver.Grant{g})[0]; err != nil {
			t.Errorf("P4: a release while an application has the pool: %v", err)
		}
	}
}

// take takes some names by a driver.
func take(ctx context.Context, t *testing.T, d driver.Driver, prefix string, mode driver.Mode, n int) (grants []driver.Grant) {
	t.Helper()
	seed := rand.Uint64() // the store may have been used before
	for i := range n {
		r := driver.Request{Name: fmt.Sprintf("%s/%x/%d", prefix, seed, i), Owner: fmt.Sprintf("%s %x %d", prefix, seed, i), Mode: mode, TTL: time.Minute}
		g, err := d.Try(ctx, r)
		must(t, err)
		grants = append(grants, g)
	}
	return grants
}
