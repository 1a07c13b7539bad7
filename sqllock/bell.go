package sqllock

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"

	"github.com/holdfastlock/holdfast/driver"
)

// MySQL and MariaDB tell nobody of a change. But a client can block there until another session lets go of a named
// lock, or ends. So an owner that waits, or holds after it has waited, has a bell: such a lock, named after the
// owner. The owner behind it in the queue blocks on it, as in an MCS lock (Mellor-Crummey and Scott, 1991), and
// reads the name when it has it. A bell decides nothing: the tables do. Without one the waiter is polled for.
//
// The connection of renewals has the bells of all clients over a pool. The ear is one more, on which a client
// listens for the one of its waiters that is nearest to its turn. The others are polled for.
type bells struct {
	*client
	// The client's mutex guards these.
	raised map[string]*sql.Conn // owners that have their bell, and the connection that has it
	ear    *waiter              // for whom the ear listens; nil: it does not
	deaf   bool                 // the server has no such locks, or a proxy gives a session to several clients
	proven bool                 // a bell was found to be this session's
}

func newBells(c *client) *bells {
	return &bells{client: c, raised: map[string]*sql.Conn{}, deaf: c.dialect != MySQL}
}

// bellOf returns the name of an owner's bell.
func (b *bells) bellOf(owner string) string {
	return fmt.Sprintf("'holdfast-%.20x'", sha256.Sum256([]byte(b.caps.Store+"\x00"+owner)))
}

// letGo returns the statement that lets an owner's bell go.
func (b *bells) letGo(owner string) Statement {
	return Statement{Text: "DO RELEASE_LOCK(" + b.bellOf(owner) + ")"}
}

// use runs f on the connection that has the owner's bell, and reports whether it did: not if there is none, or if
// others use the connection and the caller is not patient. Then the owner has its bell still.
func (b *bells) use(ctx context.Context, owner string, patient bool, f onConn) (used bool, err error) {
	b.mu.Lock()
	has, over := b.raised[owner], false
	b.mu.Unlock()
	if has == nil {
		return false, nil
	}
	_, err = b.bounded(ctx, releasing, func(ctx, late context.Context) (bool, error) {
		over, used = false, false // the connection may have broken the last time
		return b.overOwn(ctx, late, patient, func(ctx context.Context, conn *sql.Conn) error {
			if over, used = true, conn == has; !used { // it was lost, and its bells with it
				return nil
			}
			return f(ctx, conn)
		})
	})
	if over || patient {
		b.mu.Lock()
		delete(b.raised, owner)
		b.mu.Unlock()
	}
	if used && err != nil || patient && !over {
		b.hangUp() // the bell may be up still
	}
	return used, err
}

// hangUp ends the session that has the bells.
func (b *bells) hangUp() { b.pool.keep(<-b.pool.own, false) }

// join is as asking.join, and in the same round trip takes the owner's bell, if it has none, and nobody uses the
// connection of renewals nor has a full pool use for it: the next one may listen at once. Without it those behind the owner
// poll.
func (b *bells) join(ctx context.Context, conn *sql.Conn, a *asking) (done bool, err error) {
	owner := a.req.Owner
	b.mu.Lock()
	idle, proven := b.deaf || b.raised[owner] != nil || a.req.Mode != driver.Exclusive, b.proven
	b.mu.Unlock()
	bell, got, mine := b.bellOf(owner), sql.NullInt64{}, sql.NullBool{Bool: true}
	if !idle && !b.pool.full() {
		own, err := b.overOwn(ctx, ctx, false, func(ctx context.Context, conn *sql.Conn) error {
			done, err = a.join(ctx, conn, Statement{Text: "SELECT GET_LOCK(" + bell + ", 0)", Into: []any{&got}})
			if err == nil && !proven { // a question of its own, which a proxy may send elsewhere
				err = conn.QueryRowContext(ctx, "SELECT IS_USED_LOCK("+bell+") = CONNECTION_ID()").Scan(&mine)
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.proven = b.proven || err == nil && mine.Bool; got.Int64 == 1 && mine.Bool {
				b.raised[owner] = conn
			}
			b.deaf = b.deaf || !mine.Bool || err != nil && b.library.judge(err) == Refused
			return err
		})
		if own || err != nil {
			return done, err
		}
	}
	return a.join(ctx, conn)
}

// lower lets the bell of an owner go that has no hold and no place any more.
func (b *bells) lower(ctx context.Context, owner string) {
	_, _ = b.use(ctx, owner, true, func(ctx context.Context, conn *sql.Conn) error {
		return b.together(ctx, conn, []Statement{b.letGo(owner)})
	})
}

// close ends the session that has bells, if this client has any.
func (b *bells) close() {
	b.mu.Lock()
	has := len(b.raised) > 0
	clear(b.raised)
	b.mu.Unlock()
	if has {
		b.hangUp()
	}
}

// listen sets the ear to work if there is a waiter for it.
func (b *bells) listen() {
	s := b.pool.library.Stats()
	spare := s.MaxOpenConnections == 0 || s.MaxOpenConnections-s.InUse >= 2 // one for the ear, and one for requests
	b.mu.Lock()
	defer b.mu.Unlock()
	if spare && b.ear == nil && b.nextLocked() {
		b.working.Go(b.hear)
	}
}

// nextLocked chooses the waiter for which to listen: the one that is nearest to its turn. It reports whether there is
// one.
func (b *bells) nextLocked() bool {
	b.ear = nil
	for _, w := range b.waiters {
		if w.waiting > 0 && w.placed && w.request.Mode == driver.Exclusive && !w.deaf && (b.ear == nil || w.ahead < b.ear.ahead) {
			b.ear = w
		}
	}
	if b.deaf || b.life.Err() != nil {
		b.ear = nil
	}
	return b.ear != nil
}

// hear listens for one waiter after the other, until there is none.
func (b *bells) hear() {
	for more := true; more; {
		b.mu.Lock()
		w, heard := b.ear.asked(), false
		b.mu.Unlock()
		_, err := b.request(b.life, usual, func(ctx context.Context, conn *sql.Conn) (err error) {
			heard, err = b.hearOne(ctx, conn, w)
			return err
		})
		b.mu.Lock()
		w.deaf = err != nil || !heard // until it moves up
		more = b.nextLocked()
		b.mu.Unlock()
	}
}

// hearOne waits until the owner before a waiter lets its bell go, and tells the waiter what has become of it. It
// reports whether there is a sense in listening again: not if nobody has the bell and the waiter is still queued, or if
// that owner is no exclusive one. Those that share a name are granted it together, and would wait for a release.
func (b *bells) hearOne(ctx context.Context, conn *sql.Conn, w asked) (again bool, err error) {
	heard, s := sql.NullBool{}, &snapshot{}
	row := b.statements.bound(rowText, w.name)
	row.Into = append([]any{&s.total}, s.fields()...)
	all := b.statements.all(hearTexts, w.name, w.owner, b.caps.Store+"\x00")
	all[len(all)-1].Into = []any{&heard, new(any)}
	if err := b.together(ctx, conn, append(all, row)); err != nil && err != sql.ErrNoRows {
		return false, err
	}
	if s.owner != w.owner {
		if s, err = b.read(ctx, conn, w.name, look{heads: headPlaces, owner: w.owner}); err != nil {
			return false, err
		}
	}
	queued, err := b.tell(w, s)
	return err == nil && heard.Valid && !(heard.Bool && queued), err
}
