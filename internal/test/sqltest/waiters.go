package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/sqllock"
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
	held, err := holder.Try(ctx, driver.Request{Name: name, Owner: "the holder of " + name, TTL: 30 * time.Second})
	must(t, err)
	q := waiter.(driver.Queuer)
	w := &queued{held: held, req: driver.Request{Name: name, Owner: "the waiter for " + name, TTL: 30 * time.Second}, answer: make(chan answer, 1)}
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
		must(t, d.Release(ctx, []driver.Grant{w.held})[0])
		if a := <-w.answer; a.err != nil {
			t.Errorf("P7: one of many waiters: %v", a.err)
		}
		w.stop()
	}
	must(t, d.Close())
}

// DeadCrowd lets a client wait behind a hundred places of one that is gone. When the holder releases the name they
// delay it by three polls at most (P7).
func DeadCrowd(t *testing.T, open func() driver.Driver) {
	t.Helper()
	testserver.TakeTurn(t)
	const dead, name = 100, "dead crowd"
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	holder, crowd := open(), open()
	defer holder.Close()
	g, err := holder.Try(ctx, driver.Request{Name: name, Owner: "the holder", TTL: 30 * time.Second})
	must(t, err)
	for i := range dead {
		r := driver.Request{Name: name, Owner: fmt.Sprint("dead ", i), TTL: 30 * time.Second}
		if _, err := crowd.(driver.Queuer).Enqueue(ctx, r); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("Enqueue on a held name returned %v", err)
		}
	}
	must(t, crowd.Close()) // which withdraws nothing
	locks, err := holdfast.New(open(), nil)
	must(t, err)
	defer locks.Close()
	got := make(chan error, 1)
	go func() {
		lease, err := locks.Mutex(name, nil).Acquire(ctx)
		if err == nil {
			err = lease.Release()
		}
		got <- err
	}()
	for alive := false; !alive; {
		info, err := holder.(driver.Operator).Inspect(ctx, name)
		must(t, err)
		alive = slices.ContainsFunc(info.Waiters, func(w driver.Waiter) bool { return !strings.HasPrefix(w.Owner, "dead ") })
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

type together = func(context.Context, *sql.Conn, []sqllock.Statement) error

// Stall stops a client once it has locked a row. Another must get the row nevertheless (P7), and the one that stalled
// must be able to go on later. Open opens that one.
func Stall(t *testing.T, inner together, open func(together) driver.Driver, other driver.Driver) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var once sync.Once
	var armed atomic.Bool
	locked, goOn := make(chan struct{}), make(chan struct{})
	stalls := open(func(ctx context.Context, conn *sql.Conn, statements []sqllock.Statement) error {
		err := inner(ctx, conn, statements)
		if err == nil && armed.Load() && statements[len(statements)-1].Each != nil { // which reads the row
			once.Do(func() { close(locked); <-goOn })
		}
		return err
	})
	read := func(d driver.Driver, owner string) error {
		g, err := d.Try(ctx, driver.Request{Name: "stall", Owner: owner, Mode: driver.Shared, TTL: 30 * time.Second})
		if err != nil {
			return err
		}
		return d.Release(ctx, []driver.Grant{g})[0]
	}
	must(t, read(other, "the first")) // there is a row to lock
	armed.Store(true)
	stopped := make(chan error, 1)
	go func() { stopped <- read(stalls, "stalls") }()
	<-locked
	if err := read(other, "the other"); err != nil {
		t.Errorf("P7: behind a client that stands still with a locked row: %v", err)
	}
	close(goOn)
	if err := <-stopped; err != nil && !errors.Is(err, driver.ErrUncertain) {
		t.Errorf("P7: the client that stood still: %v", err)
	}
	if err := read(stalls, "again"); err != nil {
		t.Errorf("P7: a client that stood still cannot go on: %v", err)
	}
	must(t, stalls.Close(), other.Close())
}

// NewRow lets other clients come into a step that has found no row to lock: one makes the row before the step reads it, and
// one takes a hold before the step writes. All three must have their holds (P1). Open opens the client of the step.
func NewRow(t *testing.T, inner together, open func(together) driver.Driver, other driver.Driver) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var grants []driver.Grant
	try := func(d driver.Driver, owner string) {
		g, err := d.Try(ctx, driver.Request{Name: "new row", Owner: owner, Mode: driver.Shared, TTL: 30 * time.Second})
		if grants = append(grants, g); err != nil && !errors.Is(err, driver.ErrUncertain) { // this machine stood still, and the server ended the step
			t.Errorf("P1: a reader beside others: %v", err)
		}
	}
	d := open(func(ctx context.Context, conn *sql.Conn, statements []sqllock.Statement) error {
		last := len(statements) - 1
		if statements[last].Each == nil || len(grants) > 0 {
			return inner(ctx, conn, statements)
		}
		err := inner(ctx, conn, statements[:last])
		try(other, "the second")
		if err == nil {
			err = inner(ctx, conn, statements[last:])
		}
		try(other, "the third")
		return err
	})
	try(d, "the first")
	for _, g := range grants {
		if err := other.Renew(ctx, []driver.Grant{g})[0].Err; err != nil && g.Token != 0 {
			t.Errorf("P1: the hold of %s is gone: %v", g.Owner, err)
		}
	}
	must(t, d.Close(), other.Close())
}
