//go:build soak

package sqliteconn

import (
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"modernc.org/sqlite"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/sqltest"
)

// TestStoppedBeforeLock: a client stands still before it locks the database. Its step judges by the time at which it
// has the database to itself (P1), so the token of a hand-over, which is that time or later, is not from before.
func TestStoppedBeforeLock(t *testing.T) {
	t.Parallel()
	inner, err := sqlite.NewConnector(DSN(filepath.Join(t.TempDir(), "locks.db")))
	must(t, err)
	var locked atomic.Int64 // microseconds since 1970, when it was about to lock the database
	db := (&sqltest.Hook{Connector: inner, Before: func(_ any, text string) error {
		if text == "BEGIN IMMEDIATE" {
			time.Sleep(5 * time.Millisecond)
			locked.Store(time.Now().UnixMicro())
		}
		return nil
	}}).Open(t)
	d, err := New(t.Context(), db, nil)
	must(t, err)
	defer d.Close()
	request := func(owner string) driver.Request {
		return driver.Request{Name: "n", Owner: owner, TTL: time.Minute}
	}
	held, err := d.Try(t.Context(), request("holder"))
	must(t, err)
	q := d.(driver.Queuer)
	if _, err := q.Enqueue(t.Context(), request("next")); !errors.Is(err, driver.ErrHeld) {
		t.Fatal(err)
	}
	locked.Store(0)
	must(t, d.Release(t.Context(), []driver.Grant{held})[0])
	at := locked.Load()
	g, err := q.Wait(t.Context(), request("next"))
	if err != nil || at == 0 || int64(g.Token) < at {
		t.Errorf("P1: handed over with token %d, %v; the database was locked at %d", g.Token, err, at)
	}
}
