package sqllock

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/ctxerr"
	"github.com/holdfastlock/holdfast/internal/pause"
	"github.com/holdfastlock/holdfast/internal/record"
)

// requestTimeout bounds each request, besides its context.
const requestTimeout = 10 * time.Second

// grace is for how long a statement may go on after its context has ended: as a
// rule its outcome is known then, and its connection, which most libraries close
// otherwise, can be kept.
const grace = 250 * time.Millisecond

// outlast returns a context that ends the grace period after ctx, for the same reason. ctx
// has a deadline.
func outlast(ctx context.Context) (context.Context, context.CancelFunc) {
	end, _ := ctx.Deadline()
	late, cancel := context.WithDeadline(context.WithoutCancel(ctx), end.Add(grace))
	stop := context.AfterFunc(ctx, func() {
		if ctx.Err() == context.Canceled && late.Err() == nil {
			timer := time.AfterFunc(grace, cancel)
			context.AfterFunc(late, func() { timer.Stop() })
		}
	})
	return late, func() { stop(); cancel() }
}

// snapshot is what was read of one name at one moment: its row, the server's time, and as many
// places as were asked for.
type snapshot struct {
	row
	now      int64
	rowOnly  bool // no places were read
	places   []placeRow
	far      *placeRow // the place of the owner that was asked for, if it is not in places
	farAhead int
	unloaded int   // as in record.Record
	ends     int64 // when the first place ends that is not confirmed, if places were counted; 0: there is none
}

// into are the destinations of the columns now and those of the row.
func (s *snapshot) into() []any { return append([]any{&s.now}, s.fields()...) }

// look says which places to read beside a row.
type look struct {
	heads int    // how many, from the first on
	owner string // and this owner's; "": no other
	count bool   // and to count them
}

// headPlaces is how many places a step reads as a rule: that which is granted, and those that tell
// whether others wait behind it.
const headPlaces = 3

// allPlaces reads all of them.
const allPlaces = 1 << 30

// reading returns the statement that reads a name, and what it fills.
func (c *client) reading(name string, l look) (Statement, *snapshot) {
	q := &c.statements.read
	if l.count {
		q = &c.statements.readCounts
	}
	s := &snapshot{}
	statement := q.bound(name, l.heads, l.owner)
	var total, ahead int64
	statement.Each = func(scan func(...any) error) error {
		var p placeRow
		err := scan(slices.Concat(s.into(), []any{&total, &ahead, &s.ends}, p.fields())...)
		if p.Ticket != 0 && !slices.ContainsFunc(s.places, func(other placeRow) bool { return other.Ticket == p.Ticket }) {
			s.places = append(s.places, p)
		}
		return err
	}
	statement.done = func() { s.sort(l, int(total), int(ahead)) }
	return statement, s
}

// sort tells the first places from that of the owner that was asked for.
func (s *snapshot) sort(l look, total, ahead int) {
	slices.SortFunc(s.places, func(a, b placeRow) int { return cmp.Compare(a.Ticket, b.Ticket) })
	if n := len(s.places); n > l.heads {
		s.far, s.places = &s.places[n-1], s.places[:n-1:n-1]
		s.farAhead = max(ahead, n-1)
	}
	switch n := len(s.places); {
	case l.count:
		s.unloaded = total - n
	case s.far != nil || n == l.heads:
		s.unloaded = 1 // or more
	}
}

// onConn is what a request does on its connection.
type onConn func(context.Context, *sql.Conn) error

// request runs f on a connection of the pool, and again if it failed because others were at
// work at the same time. If nothing was done, also for want of a connection, it returns
// Refused beside the error.
func (c *client) request(ctx context.Context, urgency priority, f onConn) (Failure, error) {
	inner, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	failure, err := c.repeat(inner, urgency, f)
	return failure, ctxerr.Of(ctx, err)
}

func (c *client) repeat(ctx context.Context, urgency priority, f onConn) (Failure, error) {
	late := ctx
	if c.statements.dialect == SQLite { // no statement is ended there: see statementContext
		late = context.WithValue(ctx, priorityKey{}, urgency)
	} else {
		var cancel context.CancelFunc
		late, cancel = outlast(ctx)
		defer cancel()
	}
	for attempt := 0; ; attempt++ {
		if err := c.alive(ctx); err != nil {
			return Refused, err
		}
		connected, err := c.pool.with(ctx, urgency, c.library.judge, func(conn *sql.Conn) error { return c.atPrimary(late, conn, f) })
		if err == nil {
			return Refused, nil
		}
		switch failure := c.library.judge(err); {
		case err == errChanged && ctx.Err() != nil:
			return Refused, errors.Join(err, ctx.Err())
		case err == errChanged, failure == Conflict:
		case failure == Demoted:
			if attempt >= demotions {
				return Refused, err
			}
		case connected:
			return failure, err
		default:
			return Refused, err // nothing was sent
		}
		if !c.pause(ctx, attempt) {
			return Refused, err
		}
	}
}

// errChanged says that others were quicker until the context ended.
var errChanged = errors.New("others were quicker to write again and again")

// pause waits before another attempt and reports whether the context goes on. The pauses
// get longer, but not those of renewals and releases in SQLite: there the one that asks most often
// gets the lock.
func (c *client) pause(ctx context.Context, attempt int) bool {
	if attempt == 0 {
		return ctx.Err() == nil
	}
	longest := min(time.Millisecond<<min(attempt, 6), 50*time.Millisecond)
	if urgency, ok := ctx.Value(priorityKey{}).(priority); ok && urgency <= releasing {
		longest = 2 * time.Millisecond
	}
	return pause.Sleep(ctx, rand.N(longest))
}

// statementContext returns the context of a statement. In SQLite it never ends: a statement
// there takes no time but that of waiting for the lock, which this package does itself, and
// a context that can end costs several switches of goroutines for each statement.
func (c *client) statementContext(ctx context.Context) context.Context {
	if c.statements.dialect == SQLite {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// exec runs a statement and returns how many rows it changed.
func (c *client) exec(ctx context.Context, conn *sql.Conn, q *query, args ...any) (int64, error) {
	text, args := q.bind(args)
	result, err := conn.ExecContext(c.statementContext(ctx), text, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// read reads a name.
func (c *client) read(ctx context.Context, conn *sql.Conn, name string, l look) (*snapshot, error) {
	q, s := c.reading(name, l)
	return s, runOne(c.statementContext(ctx), conn, &q)
}

// attempt is one attempt at changing a name.
type attempt struct {
	*state
	now     driver.Instant
	rules   record.Rules
	winners []string // owners that were granted out of the queue
	broken  *record.Hold
	crowd   int64 // as it was read
	overdue bool  // there is a place that nobody confirms
	force   bool  // write the row even if nothing changes, so that others read the places again
}

// change lets step change the settled state of a name, and writes it unless the row has
// changed meanwhile. Then it locks the row and does the same again, so a slow client
// succeeds beside quick ones. It begins with the snapshot first, if that is not nil.
func (c *client) change(ctx context.Context, conn *sql.Conn, name string, first *snapshot, l look, step func(*attempt)) error {
	err := c.changeOnce(ctx, conn, name, first, l, step)
	if err == errCollided {
		return c.changeInTransaction(ctx, conn, name, l, step)
	}
	return err
}

// errCollided says that another client has written at the name between a step's read and its write.
var errCollided = errors.New("another was quicker to write")

// changeOnce is change that returns errCollided if the row has changed meanwhile.
func (c *client) changeOnce(ctx context.Context, conn *sql.Conn, name string, first *snapshot, l look, step func(*attempt)) error {
	var d decision
	decide := func() (err error) {
		d, err = c.decideOn(name, first, l, step, func(l look) (*snapshot, error) { return c.read(ctx, conn, name, l) })
		return err
	}
	if err := decide(); err != nil || d.write == nil {
		return err
	}
	return c.withWriterLock(ctx, func(waited bool) error {
		if waited {
			// Only in SQLite. To read before each attempt takes much longer than the attempt.
			return c.changeInTransaction(ctx, conn, name, l, step)
		}
		if d.places && c.statements.dialect != Postgres && (c.writers != nil || c.library.Together == nil) {
			return c.changeInTransaction(ctx, conn, name, l, step)
		}
		err := c.writeAtOnce(ctx, conn, &d)
		switch {
		case err == nil && *d.written > 0:
			return c.written(ctx, conn, name, &d)
		case err == nil || len(d.write) == 1 && c.library.judge(err) == Conflict:
			c.noteCollision(name)
			if c.writers != nil {
				return c.changeInTransaction(ctx, conn, name, l, step)
			}
			return errCollided
		}
		return err
	})
}

// writeAtOnce runs the statements of a decision in one round trip. If they are several, they are
// one transaction, and after an error the connection is gone.
func (c *client) writeAtOnce(ctx context.Context, conn *sql.Conn, d *decision) error {
	if len(d.write) == 1 {
		return runOne(c.statementContext(ctx), conn, &d.write[0])
	}
	err := c.together(ctx, conn, slices.Concat(bound(c.statements.start), d.write, bound(c.statements.finish)))
	if err != nil {
		c.discard(conn) // with what it has not committed
	}
	return err
}

// decision is what a step makes of a snapshot.
type decision struct {
	*attempt
	write   []Statement // write the row and places unless it has changed meanwhile; nil: nothing changes
	written *int64      // 0, after write, if the row had changed
	places  bool        // places change
	recheck bool        // see client.written
}

// decideOn decides on first or, if that is nil or does not tell enough, on what read returns. It
// reads more and more of the queue if the step needs that.
func (c *client) decideOn(
	name string, first *snapshot, l look, step func(*attempt), read func(look) (*snapshot, error),
) (d decision, err error) {
	if first != nil && first.rowOnly && (first.crowd != 0 || first.extra != "") {
		first = nil
	}
	for {
		if first == nil {
			if first, err = read(l); err != nil {
				return d, err
			}
		}
		if d, err = c.decide(name, first, step); err != errUsedUp {
			return d, err
		}
		first = nil
		l.heads = min(16*l.heads, allPlaces)
	}
}

// errUsedUp says that a step needs to see more of the queue.
var errUsedUp = errors.New("more places have to be read")

// decide lets step change the state that a snapshot shows.
func (c *client) decide(name string, s *snapshot, step func(*attempt)) (decision, error) {
	a, err := c.newAttempt(name, s)
	if err != nil {
		return decision{}, err
	}
	if a.UsedUp() {
		return decision{}, errUsedUp
	}
	step(a)
	if a.UsedUp() {
		return decision{}, errUsedUp
	}
	c.noteCrowd(name, s.crowd > 0)
	next := a.encode()
	next.crowd = a.nextCrowd(s.crowd)
	removed, put := a.changedPlaces(s)
	d := decision{attempt: a, written: new(int64(1)), places: len(removed)+len(put) > 0}
	if next.version = s.version; next == s.row && !d.places && !a.force {
		return d, nil
	}
	d.recheck = s.crowd > 0 && !a.hasQueue() && a.Open()
	next.version = max(s.version+1, s.now)
	d.write, err = c.writing(name, s, next, removed, put, c.messages(a), d.written)
	return d, err
}

// newAttempt settles the state that a snapshot shows.
func (c *client) newAttempt(name string, s *snapshot) (*attempt, error) {
	st, err := s.decode(name)
	if err != nil {
		return nil, err
	}
	a := &attempt{state: st, now: instant(s.now), crowd: s.crowd, overdue: s.ends != 0 && s.ends < s.now}
	a.rules = record.Rules{
		Poll:    c.caps.PollInterval(),
		Last:    &a.last,
		Granted: func(p *record.Place) { a.winners = append(a.winners, p.Owner) },
	}
	a.settle(a.now, &a.rules)
	return a, nil
}

// hasQueue reports whether anybody waits, as far as is known.
func (a *attempt) hasQueue() bool { return len(a.Queue) > 0 || a.Unloaded > 0 }

// changedPlaces compares the places with those that were read. A place that was confirmed has
// another Asked.
func (a *attempt) changedPlaces(s *snapshot) (removed []string, put []placeRow) {
	before := map[string]*placeRow{}
	for i := range s.places {
		before[s.places[i].Owner] = &s.places[i]
	}
	if s.far != nil {
		before[s.far.Owner] = s.far
	}
	add := func(p *record.Place) {
		now, old := placeOf(p), before[p.Owner]
		if old == nil || old.Asked != now.Asked || old.Tokens != now.Tokens {
			put = append(put, now)
		}
		delete(before, p.Owner)
	}
	for i := range a.Queue {
		add(&a.Queue[i])
	}
	if a.Far != nil {
		add(a.Far)
	}
	return slices.Sorted(maps.Keys(before)), put
}

// writing returns the statements that write the row and places, and notify others, if the row has
// still the version of the snapshot. If not, they set written to 0.
func (c *client) writing(
	name string, s *snapshot, next row, removed []string, put []placeRow, messages []message, written *int64,
) ([]Statement, error) {
	args := []any{
		name, next.version, next.token, next.owner, next.client, next.ttl, next.delay, next.note, next.taken, next.expires,
		next.crowd, next.extra,
	}
	simple, full := &c.statements.insert, &c.statements.writeNew
	if s.version != 0 {
		args = append(args, s.version)
		simple, full = &c.statements.update, &c.statements.write
	}
	if c.statements.dialect == Postgres && len(removed)+len(put)+len(messages) > 0 {
		if s.version == 0 {
			args = append(args, 0) // so that both number their arguments alike
		}
		for _, list := range []any{append([]string{}, removed...), append([]placeRow{}, put...), append([]message{}, messages...)} {
			text, err := json.Marshal(list)
			if err != nil {
				return nil, err
			}
			args = append(args, string(text))
		}
		w := full.bound(args...)
		w.Into = []any{written, new(int64)}
		return []Statement{w}, nil
	}
	w := simple.bound(args...)
	w.Changed = written
	if len(removed)+len(put) == 0 {
		return []Statement{w}, nil
	}
	all := []Statement{w}
	if c.statements.dialect == MySQL {
		if c.library.Together != nil {
			all[0].Changed = nil
			all = append(all, Statement{Text: "SET @holdfast_done = ROW_COUNT()"},
				Statement{Text: "SELECT @holdfast_done", Into: []any{written}})
		} else {
			all = append(all, Statement{Text: "SET @holdfast_done = 1"})
		}
	}
	for _, owner := range removed {
		all = append(all, c.statements.removePlace.bound(name, owner))
	}
	for i := range put {
		p := &put[i]
		all = append(all, c.statements.addPlace.bound(name, p.Owner, p.Tokens, p.Joined, p.Asked, p.Ends, p.Request))
	}
	return all, nil
}

// enter takes a place for a request at a name for which others wait, or confirms the one that it
// has, without touching the name's row. It then reads the name: only if the row still says that
// there is a crowd, everybody will look at the new place.
func (c *client) enter(
	ctx context.Context, conn *sql.Conn, req *driver.Request, sent driver.Instant, placed bool, ahead int, l look,
) (*snapshot, error) {
	args := []any{req.Name, req.Owner, req.Tokens, int64(sent), micros(c.caps.PlaceLife(ahead))}
	put := func() []Statement {
		if placed {
			return []Statement{c.statements.confirm.bound(args...)}
		}
		join := c.statements.join
		if c.library.Together == nil && c.statements.dialect == Postgres {
			join = c.statements.join[2:3] // alone it is a transaction too
		}
		return bound(join, append(args, requestText(req, c.channel), crowdOf(req))...)
	}
	if c.writers == nil {
		read, s := c.reading(req.Name, l)
		err := c.together(ctx, conn, append(put(), read))
		if err != nil {
			c.discard(conn) // the transaction may have begun
		}
		return s, err
	}
	if err := c.withWriterLock(ctx, func(bool) error { return c.unsynced(ctx, conn, put()) }); err != nil {
		return nil, err
	}
	return c.read(ctx, conn, req.Name, l)
}

// prune removes up to two places of a name that nobody confirms: see record.Record.Ask. It finds
// them among those that were not read.
func (c *client) prune(ctx context.Context, conn *sql.Conn, name string) error {
	var owners []string
	if err := c.scan(ctx, conn, &c.statements.over, []any{name}, func(rows *sql.Rows) error {
		var name, owner string
		err := rows.Scan(&name, &owner)
		owners = append(owners, owner)
		return err
	}); err != nil {
		return err
	}
	for _, owner := range owners {
		if err := c.removeOver(ctx, conn, name, owner); err != nil {
			return err
		}
	}
	return nil
}

// removeOver removes a place if nobody has confirmed it. Each place is removed by its key:
// statements that remove several lock rows in orders that differ.
func (c *client) removeOver(ctx context.Context, conn *sql.Conn, name, owner string) error {
	return c.withWriterLock(ctx, func(bool) error {
		_, err := c.exec(ctx, conn, &c.statements.removeOver, name, owner)
		return err
	})
}

// message is a notification for a client that listens.
type message struct {
	Channel string `json:"channel"`
	Payload string `json:"payload"`
}
