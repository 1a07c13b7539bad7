package mysqlconn

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/sqltest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/sqllock"
)

func TestForgotten(t *testing.T) {
	onEach(t, func(t *testing.T, server *testserver.MySQL) {
		db := openDB(t, server, "?interpolateParams=true&multiStatements=true")
		open := func(longest time.Duration) driver.Driver {
			d, err := New(t.Context(), db, &sqllock.Options{MaxTTL: longest})
			must(t, err)
			return d
		}
		sqltest.Forgotten(t, db, open)

		// A life ends with the process if commits are not synced, so the setting makes it another one.
		exec(t, db, "UPDATE holdfast_meta SET value = '' WHERE name = 'life'")
		d := open(time.Hour)
		defer d.Close()
		req := driver.Request{Name: "other", Owner: "first", TTL: time.Minute}
		for range 2 { // by a step, and by the statement that relies on what it has read
			g, err := d.Try(t.Context(), req)
			must(t, err, d.Release(t.Context(), []driver.Grant{g})[0])
		}
		waited, err := d.Try(t.Context(), driver.Request{Name: "waited", Owner: "first", TTL: time.Minute})
		must(t, err)
		if _, err := d.(driver.Queuer).Enqueue(t.Context(), driver.Request{Name: "waited", Owner: "second", TTL: time.Minute}); !errors.Is(err, driver.ErrHeld) {
			t.Fatal(err)
		}
		defer exec(t, db, "SET GLOBAL innodb_flush_log_at_trx_commit = 1")
		exec(t, db, "SET GLOBAL innodb_flush_log_at_trx_commit = 2")
		must(t, d.Release(t.Context(), []driver.Grant{waited})...)
		if info, err := d.(driver.Operator).Inspect(t.Context(), "waited"); err != nil || len(info.Holders) > 0 || len(info.Waiters) != 1 {
			t.Errorf("P1: the server has another life, and a release hands over: %+v, %v", info, err)
		}
		_, err = d.Try(t.Context(), req)
		if held, is := errors.AsType[*driver.HeldError](err); !is || held.Forgotten < 50*time.Minute {
			t.Errorf("P1: the server has another life: %v", err)
		}
	})
}
