//go:build soak

package bench

import (
	"context"
	"database/sql"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/sqllock"
	"github.com/holdfastlock/holdfast/sqllock/mysqlconn"
	"github.com/holdfastlock/holdfast/sqllock/pgconn"
)

// BenchmarkRuns starts 200 commands `holdfast run -w 60s NAME -- true` at once, a process each, on an idle store, and
// measures when the first and the last of them has ended. A store that is busy with its waiters serves some
// after 60 s or not at all.
func BenchmarkRuns(b *testing.B) {
	const processes = 200
	program := filepath.Join(b.TempDir(), "holdfast")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = filepath.Join("..", "..", "..", "..", "cmd", "holdfast")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	fmt.Printf("\n%d × holdfast run -w 60s, started at once\n\n| store | served | first | last |\n|---|---|---|---|\n", processes)
	for _, s := range []*store{&redisStore, &etcdStore, &filesStore, &postgresStore, &mariaDBStore, &mySQLStore} {
		b.Run(s.title, func(b *testing.B) {
			addr, stop := starts[s.name](b)
			defer stop()
			var wg sync.WaitGroup
			took, begun := make([]time.Duration, processes), time.Now()
			for i := range took {
				wg.Go(func() {
					if out, err := exec.Command(program, "run", "--store", s.url(addr), "-w", "60s", "deploy", "--", "true").CombinedOutput(); err != nil {
						b.Logf("%v: %s", err, out)
						return
					}
					took[i] = time.Since(begun).Round(time.Millisecond)
				})
			}
			wg.Wait()
			slices.Sort(took)
			served := slices.DeleteFunc(took, func(d time.Duration) bool { return d == 0 })
			fmt.Printf("| %s | %d | %v | %v |\n", s.title, len(served), served[:1], served[max(0, len(served)-1):])
		})
	}
}

// BenchmarkSharedPool lets 1,000 clients over one pool of 16 connections wait for one name, and measures until each has
// had it once.
func BenchmarkSharedPool(b *testing.B) {
	const clients, connections = 1000, 16
	fmt.Printf("\n%d clients over %d connections, each once\n\n| store | all served after |\n|---|---|\n", clients, connections)
	for _, s := range []struct {
		*store
		pool poolOf
		open func(context.Context, *sql.DB, *sqllock.Options) (driver.Driver, error)
	}{{&postgresStore, pgconn.OpenPool, pgconn.New}, {&mariaDBStore, mysqlconn.OpenPool, mysqlconn.New}, {&mySQLStore, mysqlconn.OpenPool, mysqlconn.New}} {
		b.Run(s.title, func(b *testing.B) {
			addr, stop := starts[s.name](b)
			defer stop()
			db, err := pool(s.url(addr), s.pool)
			testserver.Must(b, err)
			defer db.Close()
			db.SetMaxOpenConns(connections)
			var all []*holdfast.Client
			for range clients {
				d, err := s.open(b.Context(), db, nil)
				testserver.Must(b, err)
				c, err := holdfast.New(d, nil)
				testserver.Must(b, err)
				defer c.Close()
				all = append(all, c)
			}
			begun := time.Now()
			var wg sync.WaitGroup
			for _, c := range all {
				wg.Go(func() {
					lease, err := c.Mutex("one", nil).Acquire(b.Context())
					if err == nil {
						err = lease.Release()
					}
					if err != nil {
						b.Error(err)
					}
				})
			}
			wg.Wait()
			fmt.Printf("| %s | %v |\n", s.title, time.Since(begun).Round(time.Millisecond))
		})
	}
}
