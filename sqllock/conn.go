package sqllock

import (
	"cmp"
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast/internal/ctxerr"
	"github.com/holdfastlock/holdfast/internal/pause"
)

// requestTimeout bounds each request, besides its context.
const requestTimeout = 10 * time.Second

// grace is for how long a statement may go on after its context has ended: as a rule its outcome is known then, and
// its connection, which most libraries close otherwise, can be kept.
const grace = 250 * time.Millisecond

// demotions is how often a request is repeated because of a server that takes no writes: the pool may have several
// connections to it. After that there is no other server, for now.
const demotions = 4

// urgency says which connections a request may have.
type urgency uint8

const (
	usual     urgency = iota // one of the pool, which renewals keep afterwards if they have none
	releasing                // that of renewals, if it is free while all others are in use
	renewing                 // that of renewals
)

var (
	// errChanged says that another client was quicker. The request is repeated.
	errChanged = errors.New("others were quicker to write again and again")

	// errDemoted says that what a request has read is of a server that takes no writes.
	errDemoted = errors.New("this server takes no writes: it is a standby, or read-only")

	// errPending says that what a request has done is not committed. An application or a setting of the server can
	// leave a connection of the pool in a transaction at any time. A hold that was taken there is gone when the
	// connection ends, so it is never reported as held (P1).
	errPending = errors.New("a connection of the pool was left in a transaction, or has autocommit off:" +
		" it was closed, and what was done over it is not committed")
)

// pool is a *sql.DB as the drivers over it share it.
type pool struct {
	db      *sql.DB
	library *Library     // of the first driver, for its Pool, Stats and Close
	users   atomic.Int32 // drivers; they come and go under pools

	// own has one value while nobody uses it: the connection of renewals, nil if there is none. A renewal that had
	// to wait for a connection among 500 goroutines would come too late.
	own chan *sql.Conn
	// busy holds a value while a goroutine uses a SQLite file.
	busy chan struct{}
	// waiters has, by owner, the clients whose waiters may be queued: what hands a name over wakes the next one at once if it
	// is of this process. Else it would find out over a pool that may be full of the others' requests.
	waiters sync.Map
}

// pools are those of this process.
var pools = struct {
	sync.Mutex
	m map[any]*pool // by Library.Pool
}{m: map[any]*pool{}}

// joinPool counts one more driver over a pool, until leave. Of several *sql.DB over a Library.Pool the first serves.
func joinPool(db *sql.DB, library Library) *pool {
	library.Pool = cmp.Or[any](library.Pool, db)
	if library.Stats == nil {
		library.Stats = db.Stats
	}
	pools.Lock()
	defer pools.Unlock()
	p := pools.m[library.Pool]
	if p == nil {
		p = &pool{db: db, library: &library, own: make(chan *sql.Conn, 1), busy: make(chan struct{}, 1)}
		p.own <- nil
		pools.m[library.Pool] = p
	} else if p.db != db && library.Close != nil {
		library.Close()
	}
	p.users.Add(1)
	return p
}

// leave gives the connection of renewals back with the last driver, and closes the pool if it is not the caller's.
func (p *pool) leave() error {
	pools.Lock()
	last := p.users.Add(-1) == 0
	if last {
		delete(pools.m, p.library.Pool)
	}
	pools.Unlock()
	if !last {
		return nil
	}
	p.keep(<-p.own, false)
	if p.library.Close == nil {
		return nil
	}
	return p.library.Close()
}

// full reports whether all connections are in use.
func (p *pool) full() bool {
	s := p.library.Stats()
	return s.MaxOpenConnections > 0 && s.InUse >= s.MaxOpenConnections
}

// giveBack gives a connection back to the pool, or keeps it for renewals if it is good and those have none.
func (p *pool) giveBack(conn *sql.Conn, good bool) {
	if good && p.library.Stats().MaxOpenConnections != 1 {
		select {
		case old := <-p.own:
			if old == nil {
				p.keep(conn, p.users.Load() > 0)
				return
			}
			p.own <- old
		default: // somebody renews over it
		}
	}
	conn.Close()
}

// keep puts the connection of renewals back, or closes it if it is of no use any more: it may have bells.
func (p *pool) keep(conn *sql.Conn, useful bool) {
	if conn != nil && !useful {
		discard(conn)
		conn.Close()
		conn = nil
	}
	p.own <- conn
}

// onConn is what a request does on its connection. It may be called again.
type onConn func(context.Context, *sql.Conn) error

// request runs f on a connection, and again if it failed because others were at work at the same time. If nothing
// was done, also for want of a connection, it returns Refused beside the error.
func (c *client) request(ctx context.Context, u urgency, f onConn) (Failure, error) {
	return c.bounded(ctx, u, func(ctx, late context.Context) (bool, error) { return c.connected(ctx, late, u, f) })
}

// bounded calls once until it succeeds or there is no sense in that, within the bounds of a request. Once gets the
// context of the request and that of its statements: see outlast. It reports whether it had a connection.
func (c *client) bounded(outer context.Context, u urgency, once func(ctx, late context.Context) (bool, error)) (failure Failure, err error) {
	ctx, cancel := context.WithTimeout(outer, requestTimeout)
	defer cancel()
	late, forget := c.outlast(ctx)
	defer forget()
	defer func() { err = ctxerr.Of(outer, err) }()
	for attempt := 0; ; attempt++ {
		if err := c.alive(ctx); err != nil {
			return Refused, err
		}
		connected, err := once(ctx, late)
		if err == nil {
			return Refused, nil
		}
		switch failure := c.library.judge(err); {
		case failure == Conflict, failure == Demoted && attempt < demotions:
		case failure == Demoted, !connected:
			return Refused, err // nothing was sent, or written
		default:
			return failure, err
		}
		if !c.pause(ctx, u, attempt) {
			return Refused, err
		}
	}
}

// connected runs f once. If it reports that there was no connection, nothing was sent.
func (c *client) connected(ctx, late context.Context, u urgency, f onConn) (connected bool, err error) {
	if u == renewing || u == releasing && c.pool.full() {
		if connected, err = c.overOwn(ctx, late, u == renewing, f); connected || err != nil {
			return connected, err
		}
	}
	conn, err := c.pool.db.Conn(ctx)
	if err != nil {
		if ctx.Err() == nil && !errors.As(err, new(net.Error)) { // the server is there, and refuses more
			if connected, failed := c.overOwn(ctx, late, true, f); connected {
				return true, failed
			}
		}
		return false, err
	}
	err = c.checked(ctx, late, conn, f)
	c.pool.giveBack(conn, err == nil)
	return true, err
}

// overOwn runs f over the connection of renewals, and reports whether there is one. If somebody uses it, overOwn
// waits only if patient. Those that wait have it in the order in which they came, and before all others: a renewal
// waits for one request, or for those that the server refuses a connection.
func (c *client) overOwn(ctx, late context.Context, patient bool, f onConn) (connected bool, err error) {
	var conn *sql.Conn
	select {
	case conn = <-c.pool.own:
	default:
		if !patient {
			return false, nil
		}
		select {
		case conn = <-c.pool.own:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	if conn == nil {
		c.pool.own <- nil
		return false, nil
	}
	err = c.checked(ctx, late, conn, f)
	failure, open := c.library.judge(err), conn.Raw(func(any) error { return nil }) == nil
	c.pool.keep(conn, open && (failure == Refused || failure == Conflict))
	return true, err
}

// checked runs f on a connection, and leaves the connection if the server takes no writes, or if the connection is
// in a transaction afterwards. What f has done then counts as unknown: it may have written just before.
//
// A server may become a standby, or read-only, while its clients' connections stay open. Whatever is written over
// them is refused, and what is read there may be old. PostgreSQL says that it is a standby beside each answer,
// MySQL's statements fail there (see {primary}), and a connection of SQLite may have been set to read only.
//
// Goroutines of this process that use a SQLite file over the pool line up here, not at the file.
func (c *client) checked(ctx, late context.Context, conn *sql.Conn, f onConn) error {
	if c.dialect == SQLite {
		select {
		case c.pool.busy <- struct{}{}:
			defer func() { <-c.pool.busy }()
		case <-ctx.Done():
			return errChanged // which counts as: nothing was done
		}
	}
	err := f(late, conn)
	if errors.Is(err, errUnbegun) {
		err = cmp.Or(c.begin(late, conn), err)
	}
	if c.library.Pending != nil && c.library.Pending(late, conn) {
		discard(conn)
		if err == nil {
			err = errPending
		}
	}
	if c.library.judge(err) == Demoted || c.library.Demoted != nil && c.library.Demoted(late, conn) {
		if c.library.Leave != nil {
			c.library.Leave(conn)
		}
		discard(conn)
		if c.library.Idle > 0 { // those may lead there too,
			c.pool.db.SetMaxIdleConns(0)
			c.pool.db.SetMaxIdleConns(c.library.Idle)
		}
		select {
		case own := <-c.pool.own: // and so may this one
			c.pool.keep(own, false)
		default: // a renewal uses it
		}
		if err == nil {
			return errDemoted
		}
		return fmt.Errorf("%w: %w", errDemoted, err)
	}
	return err
}

// discard closes a connection, with what it has not committed.
func discard(conn *sql.Conn) {
	conn.Raw(func(any) error { return sqldriver.ErrBadConn })
}

// pause waits before another attempt and reports whether the context goes on. The pauses get longer, but those of
// renewals and releases in SQLite stay short: there the one that asks most often gets the lock.
func (c *client) pause(ctx context.Context, u urgency, attempt int) bool {
	if attempt == 0 {
		return ctx.Err() == nil
	}
	longest := min(time.Millisecond<<min(attempt, 6), 25*time.Millisecond)
	if u >= releasing {
		longest = 2 * time.Millisecond
	}
	return pause.Sleep(ctx, rand.N(longest))
}

// outlast returns a context that ends the grace period after ctx, which has a deadline. That of SQLite never ends: a
// statement there takes no time but that of waiting for the lock, for some milliseconds, and a context that can end costs
// several switches of goroutines for each statement.
func (c *client) outlast(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.dialect == SQLite {
		return context.WithoutCancel(ctx), func() {}
	}
	end, _ := ctx.Deadline()
	late, cancel := context.WithDeadline(context.WithoutCancel(ctx), end.Add(grace))
	stop := context.AfterFunc(ctx, func() {
		if ctx.Err() == context.Canceled {
			time.AfterFunc(grace, cancel)
		}
	})
	return late, func() { stop(); cancel() }
}

// exec runs a statement and returns how many rows it has changed.
func (c *client) exec(ctx context.Context, conn *sql.Conn, s Statement) (n int64, err error) {
	s.Changed = &n
	err = c.together(ctx, conn, []Statement{s})
	return n, err
}

// scan calls each for each row of a statement's result.
func (c *client) scan(ctx context.Context, conn *sql.Conn, s Statement, each func(scan func(...any) error) error) error {
	s.Each = each
	return c.together(ctx, conn, []Statement{s})
}
