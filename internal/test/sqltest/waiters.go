package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
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

// DeadCrowd lets a client wait behind a hundred that are killed together, each with connections of its own. When
// the holder releases the name they delay it by three polls at most (P7).
func DeadCrowd(t *testing.T, open func() driver.Driver) {
	t.Helper()
	testserver.TakeTurn(t)
	const dead, name = 100, "dead crowd"
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	holder := open()
	defer holder.Close()
	g, err := holder.Try(ctx, driver.Request{Name: name, Owner: "the holder", TTL: time.Minute})
	must(t, err)
	locks, err := holdfast.New(open(), nil)
	must(t, err)
	defer locks.Close()
	var all [dead]driver.Driver
	var requests [dead]driver.Request
	for i := range all {
		all[i], requests[i] = open(), driver.Request{Name: name, Owner: fmt.Sprintf("%x", rand.Uint64()), TTL: time.Minute}
	}
	waiting := func() (ofDead, alive int) {
		info, err := holder.(driver.Operator).Inspect(ctx, name)
		must(t, err)
		for _, w := range info.Waiters {
			if slices.ContainsFunc(requests[:], func(r driver.Request) bool { return r.Owner == w.Owner }) {
				ofDead++
			} else {
				alive++
			}
		}
		return ofDead, alive
	}
	var wg sync.WaitGroup
	for n := 0; n < dead*9/10; n, _ = waiting() { // on a busy machine the first places are over before the last are taken
		for i, d := range all {
			wg.Go(func() {
				if _, err := d.(driver.Queuer).Enqueue(ctx, requests[i]); !errors.Is(err, driver.ErrHeld) {
					t.Errorf("Enqueue on a held name returned %v", err)
				}
			})
		}
		wg.Wait()
	}
	for _, d := range all {
		wg.Go(func() { d.Close() }) // which withdraws nothing
	}
	defer wg.Wait()
	got := make(chan error, 1)
	go func() {
		lease, err := locks.Mutex(name, nil).Acquire(ctx)
		if err == nil {
			err = lease.Release()
		}
		got <- err
	}()
	for _, alive := waiting(); alive == 0; _, alive = waiting() {
	}
	released := time.Now()
	must(t, holder.Release(ctx, []driver.Grant{g})[0])
	if err := <-got; err != nil {
		t.Fatalf("P7: behind dead clients: %v", err)
	}
	if took, bound := time.Since(released), 3*holder.Caps().PollInterval(); took > bound {
		t.Errorf("P7: %d dead clients have delayed a live one by %v, longer than %v", dead, took, bound)
	}
}
