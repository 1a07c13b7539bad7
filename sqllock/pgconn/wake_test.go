//go:build soak

package pgconn

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/sqllock"
)

// TestNotifications: a notification goes to the first waiter only, and to nobody if nobody
// waits, over one connection for all drivers of the process.
func TestNotifications(t *testing.T) {
	server := testserver.StartPostgres(t)
	admin := openDB(t, server)
	listeners := func() (n int) {
		must(t, admin.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN %' AND pid <> pg_backend_pid()").Scan(&n))
		return n
	}
	var mu sync.Mutex
	payloads := map[string]bool{} // without those of a driver's start
	var locks []*holdfast.Client
	for range 4 {
		db := openDB(t, server)
		config, err := configOf(t.Context(), db)
		must(t, err)
		library := libraryFor(config)
		listen := library.Listen
		library.Listen = func(ctx context.Context, receive func(string)) (string, func(), error) {
			return listen(ctx, func(payload string) {
				if !strings.HasPrefix(payload, "hello ") && payload != "" {
					mu.Lock()
					payloads[payload] = true
					mu.Unlock()
				}
				receive(payload)
			})
		}
		d, err := sqllock.New(t.Context(), db, sqllock.Postgres, library, &sqllock.Options{Poll: time.Minute})
		must(t, err)
		c, err := holdfast.New(d, nil)
		must(t, err)
		locks = append(locks, c)
	}
	if n := listeners(); n != 1 {
		t.Errorf("P9: four drivers of a process listen on %d connections; one is enough", n)
	}
	handOver(t, locks)
	mu.Lock()
	if n := len(payloads); n != 3 {
		t.Errorf("three hand-offs and a release for which nobody waited made %d notifications; three are right", n)
	}
	mu.Unlock()
	for _, c := range locks {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	for end := time.Now().Add(time.Minute); listeners() > 0; {
		if time.Now().After(end) {
			t.Fatalf("P9: %d connections listen when all drivers are closed", listeners())
		}
	}
}

// handOver lets the first client release a lock, and then each of the others, which wait for it.
func handOver(t *testing.T, locks []*holdfast.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	lease, err := locks[0].Mutex("n", nil).Acquire(ctx)
	must(t, err)
	leases := make(chan *holdfast.Lease, len(locks))
	for i, l := range locks[1:] {
		go func() {
			lease, err := l.Mutex("n", nil).Acquire(ctx)
			if err != nil {
				t.Errorf("P7: a waiter: %v", err)
			}
			leases <- lease
		}()
		for info, _ := locks[0].Inspect(ctx, "n"); len(info.Waiters) != i+1 && ctx.Err() == nil; info, _ = locks[0].Inspect(ctx, "n") {
		}
	}
	for range locks[1:] {
		if err := lease.Release(); err != nil {
			t.Fatalf("P4: %v", err)
		}
		if lease = <-leases; lease == nil {
			t.FailNow()
		}
	}
	if err := lease.Release(); err != nil {
		t.Fatalf("P4: %v", err)
	}
}
