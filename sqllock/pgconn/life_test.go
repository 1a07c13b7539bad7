package pgconn

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/sqltest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/sqllock"
)

func TestForgotten(t *testing.T) {
	db := openDB(t, shared(t))
	sqltest.Forgotten(t, db, func(longest time.Duration) driver.Driver {
		d, err := New(t.Context(), db, &sqllock.Options{MaxTTL: longest})
		must(t, err)
		return d
	})
}

// TestUnlogged: P1: after a crash has emptied unlogged tables nothing is granted until the holds of before have ended.
func TestUnlogged(t *testing.T) {
	server := testserver.StartPostgres(t)
	url := server.URL("postgres")
	if c, err := holdfast.Open(t.Context(), url); err != nil {
		t.Fatal(err)
	} else {
		c.Close()
	}
	if _, err := holdfast.Open(t.Context(), url+"&hf.durable=no"); err == nil || !strings.Contains(err.Error(), "SET UNLOGGED") {
		t.Errorf("tables that are logged: %v", err)
	}
	url += "&hf.tables=quick&hf.maxttl=2s"
	options := &holdfast.Options{TTL: 2 * time.Second}
	open := func(params string) *holdfast.Client {
		c, err := holdfast.Open(t.Context(), url+params)
		must(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	first, other := open("&hf.durable=no"), open("") // tables that are there are used as they are
	lease, err := first.Mutex("x", options).Acquire(t.Context())
	must(t, err)
	server.Kill()
	server.Start()
	var held *holdfast.HeldError
	var next *holdfast.Lease
	for held == nil && next == nil {
		if next, err = other.Mutex("x", options).TryAcquire(t.Context()); err != nil {
			if h, is := errors.AsType[*holdfast.HeldError](err); is && h.Forgotten > 0 {
				held = h
			}
		}
	}
	if next == nil {
		next, err = other.Mutex("x", options).Acquire(t.Context())
		must(t, err)
	}
	if lease.Err() == nil || next.Token() <= lease.Token() {
		t.Errorf("P1, P3: %v is held, %v; token %d comes after %d", lease, lease.Err(), next.Token(), lease.Token())
	}
	if g := first.Caps(); g.Guarantees.Faults[driver.StoreRestart].Exclusion != driver.Delays {
		t.Errorf("the guarantees say %+v", g.Guarantees.Faults[driver.StoreRestart])
	}
}
