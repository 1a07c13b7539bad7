package sqllock

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/record"
)

// A step changes one name. It has the name's row to itself from its read to its commit, so nothing comes between
// the two: places are taken under a shared lock of the row (see asking.join). If it takes its lock late, it judges
// by what is there then, because it reads after that.

// snapshot is what was read of one name at one moment: its row, the server's time, and as many places as were asked
// for.
type snapshot struct {
	row
	now    int64
	memory string // of the store's life, and
	life   string // that which it has now: see client.opens
	places []placeRow
	heads  int // more places than that many end with the owner's that was asked for
	ahead  int // how many are before that one
	total  int // how many places there are, if more were not read
}

// clock are the destinations of the columns now and memory.
func (s *snapshot) clock() []any { return []any{&s.now, &s.memory, &s.life} }

// look says which places to read beside a row.
type look struct {
	heads int    // how many, from the first on
	owner string // and this owner's; "": no other
}

const (
	// headPlaces is how many places a step reads as a rule: that which is granted, and those that tell whether
	// others wait behind it.
	headPlaces = 3
	// allPlaces reads all of them.
	allPlaces = 1 << 30
)

// read reads a name, after other statements in the same round trip.
func (c *client) read(ctx context.Context, conn *sql.Conn, name string, l look, before ...Statement) (*snapshot, error) {
	q, s := c.statements.bound(readText, name, l.heads, l.owner), &snapshot{heads: l.heads}
	q.Each = func(scan func(...any) error) error {
		var p placeRow
		err := scan(slices.Concat(s.clock(), []any{&s.total, &s.ahead}, s.fields(), p.fields())...)
		if p.Ticket != 0 && !slices.ContainsFunc(s.places, func(other placeRow) bool { return other.Ticket == p.Ticket }) {
			s.places = append(s.places, p)
		}
		return err
	}
	err := c.together(ctx, conn, append(before, q))
	slices.SortFunc(s.places, func(a, b placeRow) int { return cmp.Compare(a.Ticket, b.Ticket) })
	return s, err
}

// change is what a step makes of a snapshot.
type change struct {
	*state
	name    string
	now     driver.Instant
	rules   record.Rules
	before  *snapshot
	winners []string     // owners that were granted out of the queue
	broken  *record.Hold // by an operator

	next             row      // what the row is to be, but for its version
	removed          []string // owners of places
	added, confirmed []placeRow
}

// newChange settles the state that a snapshot shows.
func (c *client) newChange(name string, s *snapshot) (*change, error) {
	st, err := s.decode(name)
	if err != nil {
		return nil, err
	}
	a := &change{state: st, name: name, now: instant(s.now), before: s}
	a.rules = record.Rules{
		Poll:    c.caps.PollInterval(),
		Last:    &a.last,
		Opens:   c.opens(s),
		Granted: func(p *record.Place) { a.winners = append(a.winners, p.Owner) },
	}
	a.settle(a.now, &a.rules)
	return a, nil
}

// decide lets f change the settled state that a snapshot shows. It returns nil if f needs to see more of the queue.
func (c *client) decide(name string, s *snapshot, f func(*change)) (*change, error) {
	a, err := c.newChange(name, s)
	switch {
	case err == nil && a.rules.Opens == never:
		return nil, errUnbegun
	case err != nil || a.UsedUp():
		return nil, err
	}
	f(a)
	if a.UsedUp() {
		return nil, nil
	}
	a.next = a.encode()
	a.next.crowd, a.next.version = a.nextCrowd(s.crowd), s.version
	a.comparePlaces()
	return a, nil
}

// comparePlaces finds out which places are to be written. One that was confirmed has another Asked.
func (a *change) comparePlaces() {
	before := map[string]*placeRow{}
	for i := range a.before.places {
		before[a.before.places[i].Owner] = &a.before.places[i]
	}
	compare := func(p *record.Place) {
		now, old := placeOf(p), before[p.Owner]
		switch {
		case old == nil:
			a.added = append(a.added, now)
		case old.Asked != now.Asked || old.Tokens != now.Tokens:
			a.confirmed = append(a.confirmed, now)
		}
		delete(before, p.Owner)
	}
	for i := range a.Queue {
		compare(&a.Queue[i])
	}
	if a.Far != nil {
		compare(a.Far)
	}
	a.removed = slices.Sorted(maps.Keys(before))
}

// quiet reports whether nothing changes but a confirmation.
func (a *change) quiet() bool {
	return a.next == a.before.row && len(a.removed) == 0 && len(a.added) == 0
}

// peekOrStep lets f decide on what is read without a lock, and again in a step if there is something to write.
func (c *client) peekOrStep(ctx context.Context, conn *sql.Conn, name string, l look, f func(*change)) error {
	s, err := c.read(ctx, conn, name, l)
	if err != nil {
		return err
	}
	if a, err := c.decide(name, s, f); err != nil || a != nil && a.quiet() {
		return err
	}
	return c.step(ctx, conn, name, l, f)
}

// stepAlone is a request of one step, and returns what f does.
func (c *client) stepAlone(ctx context.Context, u urgency, name string, f func(*change) error) error {
	var answer error
	_, err := c.request(ctx, u, func(ctx context.Context, conn *sql.Conn) error {
		return c.step(ctx, conn, name, look{heads: headPlaces}, func(a *change) { answer = f(a) })
	})
	return errors.Join(err, answer)
}

// step lets f decide on a name, and writes what changes. Then are statements that follow the commit in the same
// round trip. f may be called again.
func (c *client) step(ctx context.Context, conn *sql.Conn, name string, l look, f func(*change), then ...Statement) error {
	a, err := c.lockAndDecide(ctx, conn, name, l, f)
	if err == nil {
		err = c.write(ctx, conn, a, then)
	}
	if err != nil {
		return c.rollBack(ctx, conn, err)
	}
	c.deliver(a)
	return nil
}

// lockAndDecide begins a transaction that has the name to itself, reads it and lets f decide. It reads more and
// more of the queue if f needs that. A row that is read and was not there to be locked is another client's, too (P1).
func (c *client) lockAndDecide(ctx context.Context, conn *sql.Conn, name string, l look, f func(*change)) (*change, error) {
	before, locked := append(c.statements.all(beginTexts), c.statements.all(lockTexts, name)...), c.dialect == SQLite
	if !locked {
		before[len(before)-1].Each = func(func(...any) error) error { locked = true; return nil }
	}
	for {
		s, err := c.read(ctx, conn, name, l, before...)
		switch {
		case err != nil:
			return nil, err
		case s.version != 0 && !locked:
			return nil, errChanged
		}
		if a, err := c.decide(name, s, f); a != nil || err != nil {
			return a, err
		}
		before, l.heads = nil, min(16*l.heads, allPlaces)
	}
}

// write writes what changes, and commits. A row that is missing cannot be locked, so of those that insert it the
// database lets one. That is done after the transaction: in InnoDB those that lock a gap let nobody insert there. A
// name without a row has no places.
func (c *client) write(ctx context.Context, conn *sql.Conn, a *change, then []Statement) error {
	var all []Statement
	if a.next != a.before.row {
		all = append(all, c.writeRow(a))
	}
	if a.before.version == 0 && len(all) > 0 {
		n := int64(0)
		all[0].Changed = &n
		err := c.together(ctx, conn, slices.Concat(c.statements.all(commitTexts), all, then))
		if err == nil && n == 0 {
			return errChanged
		}
		return err
	}
	for _, owner := range a.removed {
		all = append(all, c.statements.bound(removePlaceText, a.name, owner))
	}
	for _, p := range slices.Concat(a.added, a.confirmed) {
		all = append(all, c.statements.bound(addPlaceText, a.name, p.Owner, p.Tokens, p.Joined, p.Asked, p.Ends, p.Request))
	}
	return c.together(ctx, conn, slices.Concat(all, c.messages(a), c.statements.all(commitTexts), then))
}

// writeRow returns the statement that writes the row.
func (c *client) writeRow(a *change) Statement {
	text, r := updateText, &a.next
	if a.before.version == 0 {
		text = insertText
	}
	version := max(a.before.version+1, a.before.now)
	return c.statements.bound(text, a.name, version, r.token, r.owner, r.client, r.ttl, r.delay, r.note, r.taken, r.expires, r.crowd, r.extra)
}

// rollBack ends the transaction in which err was met, and returns err. A connection of which it is not certain that
// nothing is committed is closed. In SQLite there may be no transaction to end, because it did not begin.
func (c *client) rollBack(ctx context.Context, conn *sql.Conn, err error) error {
	conflict := c.library.judge(err) == Conflict
	if !conflict || c.together(ctx, conn, c.statements.all(rollbackTexts)) != nil && c.dialect != SQLite {
		discard(conn)
	}
	return err
}
