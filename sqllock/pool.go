package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A pool hands its connections out in no order, and an application may use it too.
// A renewal that waits for a connection among 500 goroutines comes too late. So the drivers over a pool keep one of its
// connections in reserve, for renewals, and for releases that wait for the pool. A
// pool of one connection has none to spare: there renewals are the next to have it.

// pool is a *sql.DB as the drivers over it share it.
type pool struct {
	db    *sql.DB
	stats func() sql.DBStats // see Library.Stats
	users int                // drivers; guarded by pools

	// queue is where all but renewals wait until they may ask db for a connection,
	// so that there are never many who wait there beside a renewal.
	queue   queue
	reserve reserve

	life context.Context // ends with the last driver
	end  context.CancelFunc
	late atomic.Int32 // connections that are opened for requests that have given up
}

// pools are those of this process.
var pools = struct {
	sync.Mutex
	m map[*sql.DB]*pool
}{m: map[*sql.DB]*pool{}}

// joinPool counts one more driver over a pool, until leave.
func joinPool(db *sql.DB, stats func() sql.DBStats) *pool {
	pools.Lock()
	defer pools.Unlock()
	p := pools.m[db]
	if p == nil {
		if stats == nil {
			stats = db.Stats
		}
		p = &pool{db: db, stats: stats}
		p.life, p.end = context.WithCancel(context.Background())
		pools.m[db] = p
	}
	p.users++
	return p
}

// leave gives the reserved connection back with the last driver.
func (p *pool) leave() {
	pools.Lock()
	p.users--
	last := p.users == 0
	if last {
		delete(pools.m, p.db)
	}
	pools.Unlock()
	if last {
		p.end()
		p.reserve.close()
	}
}

// with calls f with a connection. If it reports that there was none, nothing was sent.
// judge tells whether a connection can still be used after an error of f.
func (p *pool) with(
	ctx context.Context, urgency priority, judge func(error) Failure, f func(*sql.Conn) error,
) (connected bool, err error) {
	stats := p.stats()
	p.queue.setRoom(roomOf(stats.MaxOpenConnections))
	single := stats.MaxOpenConnections == 1
	place := &ticket{priority: urgency}
	defer p.queue.leave(place)
	if single {
		p.reserve.giveBack() // others need it
	} else if urgency <= releasing {
		return p.race(ctx, place, urgency == releasing && stats.Idle > 0, judge, f)
	}
	if err := p.await(ctx, place); err != nil {
		return false, err
	}
	if !single && p.usedByOthers() {
		return p.race(ctx, place, false, judge, f)
	}
	conn, err := p.connect(ctx)
	switch {
	case err != nil && !single && ctx.Err() == nil && refused(err):
		return p.race(ctx, place, false, judge, f)
	case err != nil:
		return false, err
	}
	err = f(conn)
	p.giveBack(conn, err == nil && !single && urgency <= taking)
	return true, err
}

// refused reports whether the server answered that it accepts no further connection of
// this user. Then the reserved one may be all there is.
func refused(err error) bool {
	silent := net.Error(nil)
	return !errors.As(err, &silent)
}

// roomOf is how many requests other than renewals may ask a pool of some size at a
// time: one of its connections is reserved.
func roomOf(connections int) int {
	switch connections {
	case 0: // it has no bound
		return math.MaxInt
	case 1:
		return 1
	}
	return connections - 1
}

// usedByOthers reports whether all connections are in use. Then the application has one
// that a request of ours, which was let in, could have; maybe for long.
func (p *pool) usedByOthers() bool {
	stats := p.stats()
	return stats.MaxOpenConnections > 0 && stats.InUse >= stats.MaxOpenConnections
}

// await returns when a request may ask db for a connection. It may be called again.
func (p *pool) await(ctx context.Context, place *ticket) error {
	if place.priority == renewing || p.queue.isInside(place) {
		return nil
	}
	_, err := p.queue.wait(ctx, place)
	return err
}

// giveBack gives a connection back to the pool, or reserves it if it may and no connection
// is reserved: so there is one as soon as there is a hold, however busy the pool.
func (p *pool) giveBack(conn *sql.Conn, mayReserve bool) {
	if !mayReserve || !p.reserve.offer(conn) {
		conn.Close()
	}
}

// patience is for how long a release waits for the pool, if that has an idle
// connection, before it asks for the reserved one too.
const patience = 20 * time.Millisecond

// race calls f with the reserved connection or with one of db, whichever is available
// first. With idle, db should have one at once, so the reserved one is first left to
// renewals.
func (p *pool) race(
	ctx context.Context, place *ticket, idle bool, judge func(error) Failure, f func(*sql.Conn) error,
) (connected bool, err error) {
	r := &p.reserve
	asking, stopAsking := context.WithCancel(ctx)
	defer stopAsking()
	admitted := make(chan struct{})
	t := &ticket{priority: place.priority, admitted: func() { close(admitted); stopAsking() }}
	enter := func() {
		if r.enter(t) {
			t.admitted()
		}
	}
	if idle {
		defer time.AfterFunc(patience, enter).Stop()
	} else {
		enter()
	}
	if r.isInside(t) {
		return r.use(ctx, t, judge, f)
	}
	conn, err := p.ask(asking, place)
	if err == nil {
		r.leave(t)
		err = f(conn)
		p.giveBack(conn, err == nil)
		return true, err
	}
	enter()
	select {
	case <-admitted:
		return r.use(ctx, t, judge, f)
	case <-ctx.Done():
	case <-r.missing(): // and db refuses
	}
	r.leave(t)
	return false, err
}

// ask takes a connection of db.
func (p *pool) ask(ctx context.Context, place *ticket) (*sql.Conn, error) {
	if err := p.await(ctx, place); err != nil {
		return nil, err
	}
	return p.connect(ctx)
}

// maxLate is how many connections may be opened at a time for requests that have given up.
const maxLate = 4

// connect takes a connection of db. The opening of a connection goes on when the request's context ends, and
// the next caller finds the connection in the pool. Otherwise callers whose deadlines are shorter than an opening
// takes would never get one.
func (p *pool) connect(ctx context.Context) (*sql.Conn, error) {
	stats := p.stats()
	full := stats.MaxOpenConnections > 0 && stats.OpenConnections >= stats.MaxOpenConnections
	if stats.Idle > 0 || full || ctx.Err() != nil {
		return p.db.Conn(ctx)
	}
	opening, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	type opened struct {
		conn *sql.Conn
		err  error
	}
	answer := make(chan opened, 1)
	go func() {
		defer cancel()
		defer context.AfterFunc(p.life, cancel)()
		conn, err := p.db.Conn(opening)
		answer <- opened{conn, err}
	}()
	select {
	case o := <-answer:
		return o.conn, o.err
	case <-ctx.Done():
	}
	if p.late.Add(1) > maxLate {
		cancel()
	}
	go func() {
		defer p.late.Add(-1)
		if o := <-answer; o.err == nil {
			o.conn.Close() // to the pool
		}
	}()
	return nil, ctx.Err()
}
