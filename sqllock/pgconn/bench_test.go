package pgconn

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/sqllock"
)

// BenchmarkPair takes and releases locks that nobody else wants, by one goroutine
// and by 16: raw is an upsert and an update on the same pool, the floor.
func BenchmarkPair(b *testing.B) {
	server := testserver.StartPostgres(b, "fsync=on")
	db, err := sql.Open("pgx", server.URL("postgres"))
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(poolSize)
	db.SetMaxIdleConns(poolSize)
	d, err := New(b.Context(), db, &sqllock.Options{})
	if err != nil {
		b.Fatal(err)
	}
	locks, err := holdfast.New(d, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer locks.Close()
	if _, err := db.Exec("CREATE TABLE raw (name text PRIMARY KEY, owner text, token bigint, expires timestamptz) WITH (fillfactor = 50)"); err != nil {
		b.Fatal(err)
	}
	for _, workers := range []int{1, 16} {
		for _, way := range []struct {
			name string
			pair func(ctx context.Context, name string) error
		}{
			{"raw", rawPair(db)},
			{"driver", driverPair(d)},
			{"mutex", func(ctx context.Context, name string) error {
				lease, err := locks.Mutex(name, nil).TryAcquire(ctx)
				if err != nil {
					return err
				}
				return lease.Release()
			}},
		} {
			b.Run(fmt.Sprintf("%s/%d", way.name, workers), func(b *testing.B) { run(b, workers, way.pair) })
		}
	}
}

// run shares b.N pairs out among workers, a name each.
func run(b *testing.B, workers int, pair func(context.Context, string) error) {
	var left atomic.Int64
	left.Store(int64(b.N))
	done := make(chan error, workers)
	for i := range workers {
		go func() {
			name := "bench/" + strconv.Itoa(i)
			for left.Add(-1) >= 0 {
				if err := pair(b.Context(), name); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range workers {
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
}

const benchOwner = "an owner of 26 characters."

func rawPair(db *sql.DB) func(context.Context, string) error {
	return func(ctx context.Context, name string) error {
		var token int64
		if err := db.QueryRowContext(ctx, `INSERT INTO raw AS r VALUES ($1, $2, 1, clock_timestamp() + interval '30 s')
 ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, token = r.token + 1, expires = clock_timestamp() + interval '30 s'
 WHERE r.expires <= clock_timestamp() RETURNING token`, name, benchOwner).Scan(&token); err != nil {
			return err
		}
		_, err := db.ExecContext(ctx, "UPDATE raw SET owner = '', expires = 'epoch' WHERE name = $1 AND owner = $2 AND token = $3", name, benchOwner, token)
		return err
	}
}

func driverPair(d driver.Driver) func(context.Context, string) error {
	return func(ctx context.Context, name string) error {
		g, err := d.Try(ctx, driver.Request{Name: name, Owner: benchOwner, TTL: 30 * time.Second})
		if err != nil {
			return err
		}
		return d.Release(ctx, []driver.Grant{g})[0]
	}
}
