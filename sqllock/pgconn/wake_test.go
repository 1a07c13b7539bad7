//go:build soak

package pgconn

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/sqllock"
)

// interceptor records notifications, without those of the driver's start, and may discard
// them.
type interceptor struct {
	discard  bool
	mu       sync.Mutex
	payloads map[string]bool
}

func (e *interceptor) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.payloads)
}

// open returns locks over a driver whose notifications go through e.
func (e *interceptor) open(t *testing.T, server *testserver.Postgres, poll time.Duration) (*holdfast.Client, driver.Driver) {
	t.Helper()
	db := openDB(t, server)
	config, err := configOf(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	library := libraryFor(config)
	listen := library.Listen
	library.Listen = func(ctx context.Context, receive func(string)) (string, func(), error) {
		return listen(ctx, func(payload string) {
			if strings.HasPrefix(payload, "hello ") || payload == "" {
				receive(payload)
				return
			}
			e.mu.Lock()
			defer e.mu.Unlock()
			if e.payloads[payload] = true; !e.discard {
				receive(payload)
			}
		})
	}
	d, err := sqllock.New(t.Context(), db, sqllock.Postgres, library, &sqllock.Options{Prefix: fmt.Sprintf("poll%d", poll.Milliseconds()), Poll: poll})
	if err != nil {
		t.Fatal(err)
	}
	locks, err := holdfast.New(d, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close() })
	return locks, d
}

// TestNotifications: a notification goes to the first waiter only, and to nobody if nobody
// waits, over one connection for all drivers of the process. A waiter whose notification is
// lost gets the name a little later.
func TestNotifications(t *testing.T) {
	server := testserver.StartPostgres(t)
	admin := openDB(t, server)
	t.Run("to the head of the queue", func(t *testing.T) {
		e := &interceptor{payloads: map[string]bool{}}
		var locks []*holdfast.Client
		for range 4 {
			l, _ := e.open(t, server, time.Minute)
			locks = append(locks, l)
		}
		if n := listeners(t, admin); n != 1 {
			t.Errorf("P9: four drivers of a process listen on %d connections; one is enough", n)
		}
		lease := e.handOver(t, locks, 0)
		if err := lease.Release(); err != nil {
			t.Fatal(err)
		}
		if n := e.count(); n != 3 {
			t.Errorf("three hand-offs and a release for which nobody waited made %d notifications; three are right", n)
		}
	})
	t.Run("lost", func(t *testing.T) {
		const poll = 400 * time.Millisecond
		e := &interceptor{payloads: map[string]bool{}, discard: true}
		var locks []*holdfast.Client
		for range 4 {
			l, _ := e.open(t, server, poll)
			locks = append(locks, l)
		}
		// A waiter that is not notified collects its claim by its next question.
		lease := e.handOver(t, locks, 10*poll)
		if err := lease.Release(); err != nil {
			t.Fatal(err)
		}
		if e.count() == 0 {
			t.Error("no notification was lost")
		}
	})
	for end := time.Now().Add(10 * time.Second); listeners(t, admin) > 0; {
		if time.Now().After(end) {
			t.Fatalf("P9: %d connections listen when all drivers are closed", listeners(t, admin))
		}
	}
}

// handOver lets the first client release a lock, and then each of the others, which wait for
// it, and returns the last one's lease. If most is not 0 that must not take longer.
func (e *interceptor) handOver(t *testing.T, locks []*holdfast.Client, most time.Duration) *holdfast.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	lease, err := locks[0].Mutex("n", nil).Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
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
	begun := time.Now()
	for range locks[1:] {
		if err := lease.Release(); err != nil {
			t.Fatalf("P4: %v", err)
		}
		if lease = <-leases; lease == nil {
			t.FailNow()
		}
	}
	if took := time.Since(begun); most != 0 && took > most {
		t.Errorf("P7: %d hand-offs took %v", len(locks)-1, took)
	}
	return lease
}

func listeners(t *testing.T, admin *sql.DB) (n int) {
	t.Helper()
	if err := admin.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN %' AND pid <> pg_backend_pid()").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
