package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"net"
	"sync"
	"time"
)

// A pool hands its connections out in no order, and an application may use it too.
// Suppose 500 goroutines take and release locks over 16 connections: a renewal that
// waits among them comes too late. So the drivers over a pool keep one of its
// connections in reserve, for renewals, and for releases that the pool lets wait. A
// pool of one connection has none to spare: there renewals are the next to have it.

// pool is a *sql.DB as the drivers over it share it.
type pool struct {
	db    *sql.DB
	users int // drivers; guarded by pools

	// queue is where all but renewals wait until they may ask db for a connection,
	// so that there are never many who wait there beside a renewal.
	queue   queue
	reserve reserve
}

// pools are those of this process.
var pools = struct {
	sync.Mutex
	m map[*sql.DB]*pool
}{m: map[*sql.DB]*pool{}}

// joinPool counts one more driver over a pool, until leave.
func joinPool(db *sql.DB) *pool {
	pools.Lock()
	defer pools.Unlock()
	p := pools.m[db]
	if p == nil {
		p = &pool{db: db}
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
		p.reserve.end()
	}
}

// with calls f with a connection. It reports whether there was one: without, nothing
// was sent. judge tells whether a connection can still be used after an error of f.
func (p *pool) with(ctx context.Context, urgency priority, judge func(error) Failure, f func(*sql.Conn) error) (connected bool, err error) {
	stats := p.db.Stats()
	p.queue.setRoom(roomOf(stats.MaxOpenConnections))
	single := stats.MaxOpenConnections == 1
	place := &ticket{priority: urgency}
	defer p.queue.leave(place)
	if single {
		p.reserve.drop() // others need it
	} else if urgency <= releasing {
		return p.race(ctx, place, urgency == releasing && stats.Idle > 0, judge, f)
	}
	if err := p.await(ctx, place); err != nil {
		return false, err
	}
	if !single && p.usedByOthers() {
		return p.race(ctx, place, false, judge, f)
	}
	conn, err := p.db.Conn(ctx)
	switch {
	case err != nil && !single && ctx.Err() == nil && refused(err):
		return p.race(ctx, place, false, judge, f)
	case err != nil:
		return false, err
	}
	err = f(conn)
	p.back(conn, err == nil && !single && urgency <= taking)
	return true, err
}

// refused reports whether a server answered that it makes no connection, as one does
// that allows the user few: then there may only be the reserved one.
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

// usedByOthers reports whether all connections are in use although a request that
// could have one is asking: so an application has it, maybe for long.
func (p *pool) usedByOthers() bool {
	stats := p.db.Stats()
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

// back gives a connection back. It becomes the reserved one if it may and there is
// none: so there is one as soon as a hold is, however busy the pool.
func (p *pool) back(conn *sql.Conn, mayReserve bool) {
	if !mayReserve || !p.reserve.offer(conn) {
		conn.Close()
	}
}

// patience is for how long a release waits for the pool, if that has an idle
// connection, before it asks for the reserved one too.
const patience = 20 * time.Millisecond

// race calls f with the reserved connection or with one of db, whichever is to be had
// first. With idle db should have one at once, and the reserved one is left alone:
// somebody may have to renew.
func (p *pool) race(ctx context.Context, place *ticket, idle bool, judge func(error) Failure, f func(*sql.Conn) error) (connected bool, err error) {
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
		p.back(conn, err == nil)
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
	return p.db.Conn(ctx)
}
