package sqltest

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/sqllock"
)

// Polling tests clients that get no notifications: their pollers find out that they have a
// name for which they wait.
type Polling struct {
	Connector sqldriver.Connector
	// Open opens a driver as a library's New does, but one that polls.
	Open func(context.Context, *sql.DB, *sqllock.Options) (driver.Driver, error)
	// Connections counts those that the server has, without those of the pool by which it is asked. nil: there
	// is no server.
	Connections func() int
}

// Test injects faults into polls. Polls make waiters quick; each waiter must get its name without them too.
func (b *Polling) Test(t *testing.T) {
	t.Helper()
	l := &polls{more: make(chan struct{}), over: func() {}}
	db := (&Hook{Connector: b.Connector, query: l.query}).Open(t)
	plain := sql.OpenDB(b.Connector)
	defer plain.Close()
	open := func(db *sql.DB) driver.Driver {
		t.Helper()
		d, err := b.Open(t.Context(), db, &sqllock.Options{Prefix: "faulty", Poll: longPoll})
		must(t, err)
		return d
	}
	one, other := open(db), open(plain)
	defer other.Close()
	t.Run("refused", func(t *testing.T) { faultyPolls(t, l, one, other, refuse, true) })
	t.Run("hanging", func(t *testing.T) { faultyPolls(t, l, one, other, hang, false) })
	t.Run("many waiters", func(t *testing.T) {
		connections := b.Connections
		if connections != nil {
			connections = func() int { return b.Connections() - plain.Stats().OpenConnections }
		}
		OneKept(t, db, one, connections, func(ctx context.Context, waiters int) {
			for asked, names := l.count(); names < waiters; asked, names = l.count() {
				l.await(ctx, t, asked+1)
			}
		})
	})
}

// polls counts the statements of pollers, and can inject a fault into those and no others: then waiters learn
// by their own questions only what has become of them. Its methods are safe for concurrent use.
type polls struct {
	mu     sync.Mutex
	more   chan struct{} // closed at the next poll
	asked  int           // how many polls there were, faulty ones too
	names  int           // of the last one
	fault  fault         // nil: polls pass
	faulty context.Context
	over   func() // ends it
}

// fault is what becomes of a poll. The context ends with the statement's, or when another fault is injected.
type fault func(context.Context) error

func refuse(context.Context) error { return errors.New("the test refuses polls") }

func hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// Inject gives polls a fault from now on. With nil they pass again.
func (l *polls) Inject(fault fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over()
	l.fault = fault
	l.faulty, l.over = context.WithCancel(context.Background())
}

// count returns how many polls there were, and for how many names the last one was.
func (l *polls) count() (asked, names int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked, l.names
}

// await waits until there were so many polls.
func (l *polls) await(ctx context.Context, t *testing.T, asked int) {
	t.Helper()
	for {
		l.mu.Lock()
		enough, more := l.asked >= asked, l.more
		l.mu.Unlock()
		if enough {
			return
		}
		select {
		case <-more:
		case <-ctx.Done():
			t.Fatalf("P7: there was no poll: %v", ctx.Err())
		}
	}
}

// query is Hook.query.
func (l *polls) query(ctx context.Context, text string, args int, pass func(context.Context) (sqldriver.Rows, error)) (sqldriver.Rows, error) {
	places := strings.HasPrefix(text, "SELECT p.name, p.owner, (SELECT count(*) FROM ")
	if !places {
		return pass(ctx)
	}
	l.mu.Lock()
	l.asked++
	l.names = max(args, strings.Count(text, "x'")) / 2 // names and owners, in MySQL in the text
	close(l.more)
	l.more = make(chan struct{})
	fault, faulty := l.fault, l.faulty
	l.mu.Unlock()
	if fault == nil {
		return pass(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(faulty, cancel)()
	return nil, fault(ctx)
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

// longPoll is a poll beside which tests are short, so that places and claims last; a
// claim, of two polls, must still be shorter than the TTL.
const longPoll = 20 * time.Second

// faultyPolls injects a fault into the polls of a client that has a waiter. The waiter must
// get the name by its next question (P7), alone (P1). Another waiter must get it by a poll,
// without asking, once polls pass again. If again, the client goes on polling while the
// fault lasts. The drivers' poll is longPoll.
func faultyPolls(t *testing.T, l *polls, one, other driver.Driver, fault fault, again bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	l.Inject(fault)
	before, _ := l.count()
	w := queueUp(ctx, t, other, one)
	first := before + 1
	if again {
		first += 2 // one may be for those before, and one has to be over
	}
	l.await(ctx, t, first)
	release(ctx, t, other, w.held)
	if again {
		asked, _ := l.count()
		l.await(ctx, t, asked+2) // of which one began after the release
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

	before, _ = l.count()
	w = queueUp(ctx, t, other, one)
	if again {
		l.await(ctx, t, before+1)
	}
	l.Inject(nil)
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
