package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// queued is an owner in the queue, in a call of Wait.
type queued struct {
	held   driver.Grant // what it waits for
	req    driver.Request
	stop   func() // ends Wait
	answer chan answer
}

type answer struct {
	driver.Grant
	err error
}

// queueUp lets the holder take a name and the waiter wait for it.
func queueUp(ctx context.Context, t *testing.T, holder, waiter driver.Driver) *queued {
	t.Helper()
	name := fmt.Sprintf("queued/%x", rand.Uint64())
	held, err := holder.Try(ctx, driver.Request{Name: name, Owner: "the holder of " + name, TTL: time.Minute})
	must(t, err)
	q := waiter.(driver.Queuer)
	w := &queued{held: held, req: driver.Request{Name: name, Owner: "the waiter for " + name, TTL: time.Minute}, answer: make(chan answer, 1)}
	if _, err := q.Enqueue(ctx, w.req); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Enqueue on a held name returned %v", err)
	}
	ctx, w.stop = context.WithCancel(ctx)
	go func() {
		g, err := q.Wait(ctx, w.req)
		w.answer <- answer{g, err}
	}()
	return w
}

func release(ctx context.Context, t *testing.T, d driver.Driver, g driver.Grant) {
	t.Helper()
	if err := d.Release(ctx, []driver.Grant{g})[0]; err != nil {
		t.Fatalf("P4: %v", err)
	}
}

// OneKept lets a client have many waiters, each for a name of its own. All of them
// together keep one connection at most of its pool, and there is at most one more, for
// what they ask now and then (P9). Connections counts those that the server has; nil: there is no server.
// The driver's poll is long; it is closed.
func OneKept(t *testing.T, db *sql.DB, d driver.Driver, connections func() int) {
	t.Helper()
	const waiters, samples = 64, 200
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all []*queued
	for range waiters {
		all = append(all, queueUp(ctx, t, d, d))
	}
	least, most := waiters, 0
	for range samples {
		used := db.Stats().InUse
		least, most = min(least, used), max(most, used)
		time.Sleep(time.Millisecond)
	}
	const reserved = 2 // for renewals and bells, and in MySQL to hear one
	if least > 1+reserved || most > 2+reserved {
		t.Errorf("P9: %d waiters of a client keep %d connections, and use up to %d", waiters, least, most)
	}
	for connections != nil && connections() > 3+reserved { // others' may be about to end; in PostgreSQL one listens, beside the pool
		if time.Sleep(time.Millisecond); ctx.Err() != nil {
			t.Fatalf("P9: %d waiters of a client make %d connections", waiters, connections())
		}
	}
	for _, w := range all {
		release(ctx, t, d, w.held)
		if a := <-w.answer; a.err != nil {
			t.Errorf("P7: one of many waiters: %v", a.err)
		}
		w.stop()
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
