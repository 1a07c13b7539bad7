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

// Doorbell is how a database's clients come to know that they have a name for which
// they waited, where it does not tell them: they look.
type Doorbell struct {
	Connector sqldriver.Connector
	// Open opens a driver as a library's New does, but one that looks.
	Open func(context.Context, *sql.DB, *sqllock.Options) (driver.Driver, error)
	// Ways are those in which the database can spoil looks besides those in which
	// any can.
	Ways map[string]Spoil
	// Connections counts those that the server has, but for those of the pool by
	// which it is asked. nil: there is no server, and its statements cannot be ended either.
	Connections func() int
}

// Test spoils looks in all ways. Looks are what makes waiters quick; without them each
// must have its turn all the same.
func (b *Doorbell) Test(t *testing.T) {
	t.Helper()
	looks := NewLooks()
	open := func(db *sql.DB, prefix string, poll time.Duration) driver.Driver {
		t.Helper()
		d, err := b.Open(t.Context(), db, &sqllock.Options{Prefix: prefix, Poll: poll})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	db := looks.DB(t, b.Connector)
	plain := sql.OpenDB(b.Connector)
	defer plain.Close()
	one, other := open(db, "deaf", deafPoll), open(plain, "deaf", deafPoll)
	defer other.Close()
	ways := map[string]Spoil{"refused": refuse, "broken": breakDown, "hanging": hang, "frozen": freeze()}
	maps.Copy(ways, b.Ways)
	for name, spoil := range ways {
		t.Run(name, func(t *testing.T) { deaf(t, looks, one, other, spoil, name != "hanging") })
	}
	t.Run("many waiters", func(t *testing.T) {
		connections := b.Connections
		if connections != nil {
			connections = func() int { return b.Connections() - plain.Stats().OpenConnections }
		}
		OneKept(t, db, one, connections, func(ctx context.Context, waiters int) {
			for asked, names := looks.count(); names < waiters; asked, names = looks.count() {
				looks.await(ctx, t, asked+1)
			}
		})
	})
	t.Run("crowd", func(t *testing.T) {
		var drivers []driver.Driver
		for _, db := range []*sql.DB{looks.DB(t, b.Connector), looks.DB(t, b.Connector), plain} {
			drivers = append(drivers, open(db, "deafcrowd", driver.DefaultPoll))
		}
		deafCrowd(t, looks, slices.Collect(maps.Values(ways)), drivers...)
	})
	if b.Connections != nil {
		t.Run("closed", func(t *testing.T) { closeDeaf(t, looks, open(db, "deaf", deafPoll), other) })
	}
}

// lined is an owner in the queue, in a call of Wait.
type lined struct {
	held   driver.Grant // what it waits for
	req    driver.Request
	stop   func() // ends Wait
	answer chan answer
}

type answer struct {
	driver.Grant
	err error
}

// lineUp lets the holder take a name and the waiter wait for it.
func lineUp(ctx context.Context, t *testing.T, holder, waiter driver.Driver) *lined {
	t.Helper()
	name := fmt.Sprintf("lined/%x", rand.Uint64())
	held, err := holder.Try(ctx, driver.Request{Name: name, Owner: "the holder of " + name, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	q := waiter.(driver.Queuer)
	w := &lined{held: held, req: driver.Request{Name: name, Owner: "the waiter for " + name, TTL: time.Minute}, answer: make(chan answer, 1)}
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

// deafPoll is a poll beside which tests are short, so that places and claims last; a
// claim, of two polls, must still be shorter than the TTL.
const deafPoll = 20 * time.Second

// deaf spoils the looks of a client that has a waiter. The waiter must get the name by
// its next question (P7), alone (P1), and the one after it by a look, without asking,
// once looks pass again. Where looks go on while they are spoiled, again says so. The
// drivers' poll is deafPoll.
func deaf(t *testing.T, looks *Looks, one, other driver.Driver, spoil Spoil, again bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	looks.Spoil(spoil)
	before, _ := looks.count()
	w := lineUp(ctx, t, other, one)
	first := before + 1
	if again {
		first += 2 // one may be for those before, and one has to be over
	}
	looks.await(ctx, t, first)
	release(ctx, t, other, w.held)
	if again {
		asked, _ := looks.count()
		looks.await(ctx, t, asked+2) // of which one began after the release
	}
	select {
	case a := <-w.answer:
		t.Errorf("the test is of no use: in spite of spoiled looks Wait returned %+v, %v", a.Grant, a.err)
	default:
	}
	w.stop()
	<-w.answer
	g, err := one.(driver.Queuer).Enqueue(ctx, w.req)
	if err != nil {
		t.Fatalf("P7: a waiter whose client is deaf has asked, and got %v", err)
	}
	if g.Token <= w.held.Token {
		t.Errorf("P3: its token is %d after %d", g.Token, w.held.Token)
	}
	if _, err := other.Try(ctx, driver.Request{Name: w.req.Name, Owner: "another one", TTL: time.Minute}); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("P1: while it holds the name another's Try returned %v", err)
	}
	release(ctx, t, one, g)

	before, _ = looks.count()
	w = lineUp(ctx, t, other, one)
	if again {
		looks.await(ctx, t, before+1)
	}
	looks.Spoil(nil)
	release(ctx, t, other, w.held)
	a := <-w.answer
	if a.err != nil || a.Token <= w.held.Token {
		t.Fatalf("P7: when looks pass again Wait returned %+v, %v", a.Grant, a.err)
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

// deafCrowd lets many want one name while the looks of some of their clients are
// spoiled in one way after the other, and at last pass. Each must have its turns (P7),
// alone (P1). It closes the drivers.
func deafCrowd(t *testing.T, looks *Looks, ways []Spoil, drivers ...driver.Driver) {
	t.Helper()
	const each, turns = 2, 3
	total := each * turns * len(drivers)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	looks.Spoil(ways[0])
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
				for range turns {
					err := locks.Mutex("crowd", nil).Do(ctx, func(ctx context.Context, l *holdfast.Lease) error {
						if n := inside.Add(1); n > 1 {
							t.Errorf("P1: %d have the lock", n)
						}
						defer inside.Add(-1)
						if l.Token() <= last {
							t.Errorf("P3: token %d comes after %d", l.Token(), last)
						}
						last = l.Token()
						if done++; done < total*2/3 {
							looks.Spoil(ways[done%len(ways)])
						} else {
							looks.Spoil(nil)
						}
						return l.Renew(ctx) // time enough for another to be let in
					})
					if err != nil {
						t.Errorf("P7: while lookers are deaf: %v", err)
					}
				}
			})
		}
	}
	wg.Wait()
	if done != total {
		t.Errorf("P1: %d turns were had by %d", done, total)
	}
	if asked, _ := looks.count(); asked < done {
		t.Errorf("the test is of no use: in %d turns there were %d looks", done, asked)
	}
}

// patience is less than a look's own, which is ten seconds.
const patience = 5 * time.Second

// closeDeaf closes a driver whose look hangs, which must not wait until the look has
// lost its patience.
func closeDeaf(t *testing.T, looks *Looks, one, other driver.Driver) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	gaveUp := make(chan struct{})
	looks.Spoil(func(ctx context.Context, _ *look) (sqldriver.Rows, error) {
		<-ctx.Done()
		close(gaveUp)
		return nil, ctx.Err()
	})
	before, _ := looks.count()
	w := lineUp(ctx, t, other, one)
	looks.await(ctx, t, before+1)
	begun := time.Now()
	if err := one.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > patience {
		t.Errorf("P9: Close waited %v for a look that hung", took)
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
// what they ask now and then (P9). connections is as in Doorbell; waiting returns when
// so many wait. The driver's poll is long; it is closed.
func OneKept(t *testing.T, db *sql.DB, d driver.Driver, connections func() int, waiting func(ctx context.Context, waiters int)) {
	t.Helper()
	const waiters, samples = 64, 200
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all []*lined
	for range waiters {
		all = append(all, lineUp(ctx, t, d, d))
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
