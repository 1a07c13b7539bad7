package sqltest

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/sqllock"
)

// Polling tests clients that get no notifications: their pollers find out that they have a
// name for which they wait.
type Polling struct {
	Connector sqldriver.Connector
	// Open opens a driver as a library's New does, but one that polls.
	Open func(context.Context, *sql.DB, *sqllock.Options) (driver.Driver, error)
	// Faults are those that this database can inject into polls besides those that all can.
	Faults map[string]Fault
	// Connections counts those that the server has, without those of the pool by which it
	// is asked. nil: there is no server, so its statements cannot be ended either.
	Connections func() int
}

// Test injects all faults into polls. Polls make waiters quick; each waiter must get its
// name without them too.
func (b *Polling) Test(t *testing.T) {
	t.Helper()
	polls := NewPolls()
	open := func(db *sql.DB, prefix string, poll time.Duration) driver.Driver {
		t.Helper()
		d, err := b.Open(t.Context(), db, &sqllock.Options{Prefix: prefix, Poll: poll})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	db := polls.DB(t, b.Connector)
	plain := sql.OpenDB(b.Connector)
	defer plain.Close()
	one, other := open(db, "faulty", longPoll), open(plain, "faulty", longPoll)
	defer other.Close()
	faults := map[string]Fault{"refused": refuse, "broken": breakDown, "hanging": hang, "frozen": freeze()}
	maps.Copy(faults, b.Faults)
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) { faultyPolls(t, polls, one, other, fault, name != "hanging") })
	}
	t.Run("many waiters", func(t *testing.T) {
		connections := b.Connections
		if connections != nil {
			connections = func() int { return b.Connections() - plain.Stats().OpenConnections }
		}
		OneKept(t, db, one, connections, func(ctx context.Context, waiters int) {
			for asked, names := polls.count(); names < waiters; asked, names = polls.count() {
				polls.await(ctx, t, asked+1)
			}
		})
	})
	t.Run("contended", func(t *testing.T) {
		var drivers []driver.Driver
		for _, db := range []*sql.DB{polls.DB(t, b.Connector), polls.DB(t, b.Connector), plain} {
			drivers = append(drivers, open(db, "faultycontended", driver.DefaultPoll))
		}
		contendedPolls(t, polls, slices.Collect(maps.Values(faults)), drivers...)
	})
	if b.Connections != nil {
		t.Run("closed", func(t *testing.T) { closeWhilePolling(t, polls, open(db, "faulty", longPoll), other) })
	}
}

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
	if err != nil {
		t.Fatal(err)
	}
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

// longPoll is a poll beside which tests are short, so that places and claims last; a
// claim, of two polls, must still be shorter than the TTL.
const longPoll = 20 * time.Second

// faultyPolls injects a fault into the polls of a client that has a waiter. The waiter must
// get the name by its next question (P7), alone (P1). Another waiter must get it by a poll,
// without asking, once polls pass again. If again, the client goes on polling while the
// fault lasts. The drivers' poll is longPoll.
func faultyPolls(t *testing.T, polls *Polls, one, other driver.Driver, fault Fault, again bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	polls.Inject(fault)
	before, _ := polls.count()
	w := queueUp(ctx, t, other, one)
	first := before + 1
	if again {
		first += 2 // one may be for those before, and one has to be over
	}
	polls.await(ctx, t, first)
	release(ctx, t, other, w.held)
	if again {
		asked, _ := polls.count()
		polls.await(ctx, t, asked+2) // of which one began after the release
	}
	select {
	case a := <-w.answer:
		t.Errorf("the test is of no use: in spite of faulty polls Wait returned %+v, %v", a.Grant, a.err)
	default:
	}
	w.stop()
	<-w.answer
	g, err := one.(driver.Queuer).Enqueue(ctx, w.req)
	if err != nil {
		t.Fatalf("P7: a waiter whose client's polls fail has asked, and got %v", err)
	}
	if g.Token <= w.held.Token {
		t.Errorf("P3: its token is %d after %d", g.Token, w.held.Token)
	}
	if _, err := other.Try(ctx, driver.Request{Name: w.req.Name, Owner: "another one", TTL: time.Minute}); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("P1: while it holds the name another's Try returned %v", err)
	}
	release(ctx, t, one, g)

	before, _ = polls.count()
	w = queueUp(ctx, t, other, one)
	if again {
		polls.await(ctx, t, before+1)
	}
	polls.Inject(nil)
	release(ctx, t, other, w.held)
	a := <-w.answer
	if a.err != nil || a.Token <= w.held.Token {
		t.Fatalf("P7: when polls pass again Wait returned %+v, %v", a.Grant, a.err)
	}
	release(ctx, t, one, a.Grant)
	w.stop()
}

func release(ctx context.Context, t *testing.T, d driver.Driver, g driver.Grant) {
	t.Helper()
	if err := d.Release(ctx, []driver.Grant{g})[0]; err != nil {
		t.Fatalf("P4: %v", err)
	}
}

// contendedPolls lets many goroutines want one name while the polls of some of their clients
// have one fault after the other, and at last none. Each goroutine must get the name as often
// as it asks (P7), alone (P1). It closes the drivers.
func contendedPolls(t *testing.T, polls *Polls, faults []Fault, drivers ...driver.Driver) {
	t.Helper()
	const each, rounds = 2, 3
	total := each * rounds * len(drivers)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	polls.Inject(faults[0])
	var wg sync.WaitGroup
	var inside atomic.Int32
	done, last := 0, holdfast.Token(0) // which only the lock protects
	for _, d := range drivers {
		locks, err := holdfast.New(d, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close()
		for range each {
			wg.Go(func() {
				for range rounds {
					err := locks.Mutex("contended", nil).Do(ctx, func(ctx context.Context, l *holdfast.Lease) error {
						if n := inside.Add(1); n > 1 {
							t.Errorf("P1: %d have the lock", n)
						}
						defer inside.Add(-1)
						if l.Token() <= last {
							t.Errorf("P3: token %d comes after %d", l.Token(), last)
						}
						last = l.Token()
						if done++; done < total*2/3 {
							polls.Inject(faults[done%len(faults)])
						} else {
							polls.Inject(nil)
						}
						return l.Renew(ctx) // time enough for another to be let in
					})
					if err != nil {
						t.Errorf("P7: while polls fail: %v", err)
					}
				}
			})
		}
	}
	wg.Wait()
	if done != total {
		t.Errorf("P1: of %d updates under the lock %d are there", total, done)
	}
	if asked, _ := polls.count(); asked < done {
		t.Errorf("the test is of no use: in %d holds there were %d polls", done, asked)
	}
}

// patience is less than the time that a poll may take, which is ten seconds.
const patience = 5 * time.Second

// closeWhilePolling closes a driver whose poll hangs. Close must not wait until the poll's
// time is over.
func closeWhilePolling(t *testing.T, polls *Polls, one, other driver.Driver) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	gaveUp := make(chan struct{})
	polls.Inject(func(ctx context.Context, _ *poll) (sqldriver.Rows, error) {
		<-ctx.Done()
		close(gaveUp)
		return nil, ctx.Err()
	})
	before, _ := polls.count()
	w := queueUp(ctx, t, other, one)
	polls.await(ctx, t, before+1)
	begun := time.Now()
	if err := one.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > patience {
		t.Errorf("P9: Close waited %v for a poll that hung", took)
	}
	if a := <-w.answer; !errors.Is(a.err, driver.ErrClosed) {
		t.Errorf("Wait of a closed driver returned %+v, %v", a.Grant, a.err)
	}
	w.stop()
	<-gaveUp
	release(ctx, t, other, w.held)
}

// OneKept lets a client have many waiters, each for a name of its own. All of them
// together keep one connection at most of its pool, and there is at most one more, for
// what they ask now and then (P9). connections is as in Polling; waiting returns when
// so many wait. The driver's poll is long; it is closed.
func OneKept(t *testing.T, db *sql.DB, d driver.Driver, connections func() int, waiting func(ctx context.Context, waiters int)) {
	t.Helper()
	const waiters, samples = 64, 200
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all []*queued
	for range waiters {
		all = append(all, queueUp(ctx, t, d, d))
	}
	waiting(ctx, waiters)
	least, most := waiters, 0
	for range samples {
		used := db.Stats().InUse
		least, most = min(least, used), max(most, used)
		time.Sleep(time.Millisecond)
	}
	const reserved = 1 // for renewals and releases
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
