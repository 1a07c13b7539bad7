// Package record is the specification of a lock's record: what a store keeps of one name, and
// every step from one state of it to the next.
//
// A [Record] is a plain value. Its methods take the time and change it, and do nothing else:
// no clock, lock, file or goroutine is in here. A store keeps the records somewhere, runs one
// operation at a time on each, and gives it [Rules]. An operation has these steps:
//
//  1. [Record.Settle] brings the record up to the present instant. All other methods expect
//     a record that was settled at the instant that they get.
//  2. One of Ask, Renew, Release, Downgrade and Break does what was asked for.
//  3. If that may have made room, another Settle grants it to those who come first, in the
//     same step.
//  4. The store writes the record down, and wakes those whom Rules.Granted was called for. It
//     may forget a record that is idle ([Record.Idle]), under a condition about tokens that
//     Rules.Last tells.
//
// # The life of a hold
//
// A asks for a free name and gets a hold, which ends at its TTL unless A renews it. B asks and is
// refused, or takes a place in the queue, which B has to confirm at each poll.
//
// If A releases, the hold is gone at once. Within its minimum hold it is closed instead: it
// has no owner any more, and keeps others out until the minimum is over. If A vanishes, that
// is, does not renew in time, its hold is closed for its lock-delay, counted from the expiry,
// and for its minimum hold, counted from the grant, whichever ends later. If an operator
// breaks it, it is gone.
//
// Then B is granted the hold where it waits. It may never hear of that; so its hold is a
// claim, which ends after two polls, until B renews it for the first time.
//
// # Tokens
//
// A hold reserves one token, or as many as its client can hand it on to inside of its
// process. Tokens grow from hold to hold (P3). If A has reserved the tokens 1 to 100,
// releases the hold and says that 7 was the last one used, the next hold begins with 8. If
// A vanishes or its hold is broken, nobody knows how many were used, and the next hold begins
// with 101.
package record

import (
	"slices"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Record is the state of one name. The zero value is a name that nobody uses.
// Not safe for concurrent use.
type Record struct {
	Holds []Hold  // live holds, and closed ones
	Queue []Place // waiters in order of arrival

	// A store may keep the queue apart and load no more than its head. Unloaded is how many
	// places come after those in Queue, at least one if there are any, and Far is one of them
	// if it is that of the request under way, with FarAhead places before it. What a step does
	// to a record whose Queue it has used up MUST be repeated with more of the queue: see
	// UsedUp.
	Unloaded int
	Far      *Place
	FarAhead int
}

// Hold is one hold. A closed one has no owner any more; it keeps others out until it expires. Package sqllock stores
// holds as JSON, with the request beside.
type Hold struct {
	driver.Request `json:"-"`
	Client         string         `json:"c,omitempty"` // the hold ends when this client dies; "" where the store does not look for it
	Closed         bool           `json:"x,omitempty"`
	Token          driver.Token   `json:"t"`           // the first of its tokens, or the last that a renewal has told
	Last           driver.Token   `json:"b,omitempty"` // the last token that is reserved for it; 0: Token is
	Taken          driver.Instant `json:"k"`           // when it was granted
	Expires        driver.Instant `json:"e"`           // unless it is renewed; a closed one ends then
	Since          driver.Instant `json:"a,omitempty"` // as in driver.Grant, for the TTL now running; by the owner's clock
	Valid          time.Duration  `json:"v,omitempty"`
	Claim          bool           `json:"-"` // granted to a waiter that has not renewed it: it may never have heard of it
}

// Place is one waiter's place in the queue.
type Place struct {
	driver.Request
	Client string         // the place ends when this client dies, as in Hold
	Joined driver.Instant // when the place was taken
	Until  driver.Instant // the place ends then unless it is confirmed
	Asked  driver.Instant // the sending of its last request, which was answered; by the owner's clock
	// Wake is where a store in the waiter's own process signals a grant. This package does
	// not touch it.
	Wake chan struct{}
}

// Rules are what a record does not know by itself.
type Rules struct {
	// Poll is the store's driver.Caps.Poll.
	Poll time.Duration
	// Last is the last token that was given out or reserved, of this name or of all names.
	// A store that forgets idle records MUST keep one whose Last is not below what Least
	// will be for the next hold: else tokens repeat.
	Last *driver.Token
	// Least is the least token that may be given out: the present time, where tokens are a
	// hybrid clock, else 0.
	Least driver.Token
	// Opens is the instant before which nothing is granted, because the store may have forgotten holds: see package
	// life. 0: the store grants.
	Opens driver.Instant
	// Granted is called for each place that is granted, which is gone when it returns.
	Granted func(*Place)
	// Recall is called for a place that fewer than driver.FarBehind others are ahead of from now on, and whose waiter
	// has to confirm it within two polls: see driver.Caps.Recalls. Nil: the store does not recall, or loads parts of the queue.
	Recall func(*Place)
	// Alive returns false if the client is dead for certain. Nil: nobody can tell.
	Alive func(client string) bool
}

// Settle brings the record up to now. It ends the holds that nobody renewed and those of dead
// clients, and grants what is free to those who come first. So a store needs no timer of its
// own: the first client that asks again moves the queue (P7). Of the queue it looks at the head
// only: it drops places there that nobody confirms and those of dead clients, and leaves those
// behind a live one alone. So its cost does not grow with the crowd.
func (r *Record) Settle(now driver.Instant, rules *Rules) {
	kept := r.Holds[:0]
	for _, h := range r.Holds {
		if !h.Closed && now < h.Expires && rules.dead(h.Client) {
			h.Expires = now
		}
		if !h.Closed && now >= h.Expires {
			h.close(h.opens()) // vanished
		}
		if h.Closed {
			// It cannot end later than this unless the clock was set back since.
			h.Expires = min(h.Expires, now.Add(max(h.LockDelay, h.MinHold)))
		}
		if !h.Closed || now < h.Expires {
			kept = append(kept, h)
		}
	}
	clear(r.Holds[len(kept):])
	r.Holds = kept
	for len(r.Queue) > 0 {
		switch head := &r.Queue[0]; {
		case rules.over(head, now, driver.FarBehind) || rules.dead(head.Client):
			r.leave(0, now, rules)
		case now >= rules.Opens && r.admits(head.Request):
			r.handOver(now, rules)
		default:
			return
		}
	}
}

// dead reports whether the client is dead for certain.
func (rules *Rules) dead(client string) bool {
	return client != "" && rules.Alive != nil && !rules.Alive(client)
}

// over reports whether a place has ended because nobody confirms it. After the clock was set back a
// place lasts no longer than one that is confirmed now with so many ahead: that of the head was recalled.
func (rules *Rules) over(p *Place, now driver.Instant, ahead int) bool {
	p.Until = min(p.Until, now.Add(rules.life(ahead)))
	return now > p.Until
}

// life is for how long a place lasts that is confirmed with so many others ahead of it.
func (rules *Rules) life(ahead int) time.Duration {
	return driver.Caps{Poll: rules.Poll, Recalls: rules.Recall != nil}.PlaceLife(ahead)
}

// leave removes a place of the queue. Another one comes near by that: if its waiter was to confirm it late, it is
// recalled, so that clients that were killed while they were far behind delay the others no longer than any (P7).
func (r *Record) leave(i int, now driver.Instant, rules *Rules) {
	r.Queue = slices.Delete(r.Queue, i, i+1)
	if rules.Recall == nil || len(r.Queue) < driver.FarBehind {
		return
	}
	if p := &r.Queue[driver.FarBehind-1]; p.Until > now.Add(rules.life(driver.FarBehind)) {
		p.Until = now.Add(rules.life(0))
		rules.Recall(p)
	}
}

// opens returns when the hold's name opens if the hold vanishes at its expiry: after
// its lock-delay, counted from the expiry and not from the operation that notices it,
// and not before its minimum hold is over. A claim has no minimum: a winner
// that died while it waited has begun nothing, and delays nobody further (P7). A
// hold that was renewed after the clock was set back may expire before it was taken;
// its minimum counts from there.
func (h *Hold) opens() driver.Instant {
	opens := h.Expires.Add(h.LockDelay)
	if !h.Claim {
		opens = max(opens, min(h.Taken, h.Expires).Add(h.MinHold))
	}
	return opens
}

// close leaves the hold without an owner; it keeps others out until then.
func (h *Hold) close(until driver.Instant) {
	h.Closed, h.Owner, h.Client, h.Expires = true, "", "", until
}

// admits reports whether a hold for req can stand beside those there are (P1).
func (r *Record) admits(req driver.Request) bool {
	permits := req.Permits
	for i := range r.Holds {
		h := &r.Holds[i]
		switch {
		case req.Mode == driver.Slot:
			permits += h.Permits
		case req.Mode == driver.Exclusive || h.Mode == driver.Exclusive:
			return false
		}
	}
	return req.Mode != driver.Slot || permits <= req.Slots
}

// handOver grants the first place of the queue. The hold is a claim, so short that a winner
// that has stopped delays the others by two polls at most. It lasts as long as the place would
// have, or half a poll if that is longer. Of a hundred clients that were killed together the
// first is granted the name. When its claim ends, the places of the others have ended too or will
// before long, and so do the claims that they are granted until then (P7).
func (r *Record) handOver(now driver.Instant, rules *Rules) {
	p := r.Queue[0]
	r.leave(0, now, rules)
	claim := min(max(p.Until.Sub(now), rules.Poll/2), 2*rules.Poll, p.TTL)
	first := rules.reserve(p.Tokens)
	r.Holds = append(r.Holds, Hold{
		Request: p.Request, Client: p.Client, Token: first, Last: *rules.Last, Taken: now, Expires: now.Add(claim), Claim: true,
		// The winner counts from a request that it sent before this moment,
		// never from the arrival of the news (P1).
		Since: p.Asked, Valid: claim,
	})
	rules.Granted(&p)
}

// Ask takes the hold for req. If it cannot and queue is true, it takes a place for req, or
// confirms the one that it has. It may be repeated: a request that has the hold gets it again,
// with a fresh TTL. Sent is the instant before the request was sent, by the owner's clock. The
// errors are those of driver.Queuer.Enqueue and of driver.Driver.Try.
func (r *Record) Ask(req driver.Request, client string, queue bool, sent, now driver.Instant, rules *Rules) (*Hold, error) {
	if h := r.Held(req.Owner); h != nil {
		h.extend(sent, now)
		return h, nil
	}
	p := r.Queued(req.Owner)
	if p == nil {
		if err := r.mismatch(req); err != nil {
			return nil, err
		}
	}
	// Settle has granted the head of the queue what it could, so all that are
	// still queued have to wait, and others behind them unless unfair (P8).
	if now >= rules.Opens && r.admits(req) && (r.queued() == 0 || req.Unfair) {
		r.removePlace(req.Owner, now, rules)
		return r.take(req, client, sent, now, rules), nil
	}
	switch {
	case p != nil:
		e := r.heldError(req.Name, now, rules)
		e.Ahead = r.ahead(req.Owner)
		p.Until, p.Asked, p.Tokens = now.Add(rules.life(e.Ahead)), sent, req.Tokens
		return nil, e
	case queue:
		r.prune(now, rules)
		ahead := r.queued()
		r.add(Place{Request: req, Client: client, Joined: now, Until: now.Add(rules.life(ahead)), Asked: sent})
		e := r.heldError(req.Name, now, rules)
		e.Ahead = ahead
		return nil, e
	}
	return nil, r.heldError(req.Name, now, rules)
}

// add puts a new place at the end of the queue.
func (r *Record) add(p Place) {
	if r.Unloaded == 0 {
		r.Queue = append(r.Queue, p)
		return
	}
	r.Far, r.FarAhead = &p, r.queued()
	r.Unloaded++
}

// queued returns how many wait.
func (r *Record) queued() int { return len(r.Queue) + r.Unloaded }

// UsedUp reports whether a place that is not loaded could be granted now: all that are loaded
// are gone, and the holds leave room for others.
func (r *Record) UsedUp() bool { return len(r.Queue) == 0 && r.Unloaded > 0 && r.Open() }

// Open reports whether the holds leave room for any other.
func (r *Record) Open() bool {
	least := driver.Request{Mode: driver.Shared}
	if len(r.Holds) > 0 && r.Holds[0].Mode == driver.Slot {
		least = driver.Request{Mode: driver.Slot, Slots: r.Holds[0].Slots, Permits: 1}
	}
	return r.admits(least)
}

// prune drops up to two places that nobody confirms, those first that ended first. Clients may die in a
// queue behind a live one for as long as the name is held. Each new place takes the room of two dead
// ones, so the queue does not grow (P9).
func (r *Record) prune(now driver.Instant, rules *Rules) {
	for range 2 {
		first := -1
		for i := range r.Queue {
			if rules.over(&r.Queue[i], now, driver.MostPolls*driver.FarBehind) && (first < 0 || r.Queue[i].Until < r.Queue[first].Until) {
				first = i
			}
		}
		if first < 0 {
			return
		}
		r.leave(first, now, rules)
	}
}

// ahead returns how many places come before the owner's.
func (r *Record) ahead(owner string) int {
	if r.Far != nil && r.Far.Owner == owner {
		return r.FarAhead
	}
	return slices.IndexFunc(r.Queue, func(p Place) bool { return p.Owner == owner })
}

// take grants req without a place in the queue.
func (r *Record) take(req driver.Request, client string, sent, now driver.Instant, rules *Rules) *Hold {
	first := rules.reserve(req.Tokens)
	r.Holds = append(r.Holds, Hold{
		Request: req, Client: client, Token: first, Last: *rules.Last, Taken: now, Expires: now.Add(req.TTL),
		Since: sent, Valid: req.TTL,
	})
	return &r.Holds[len(r.Holds)-1]
}

// mismatch returns an error if the name is in use as another kind of lock, or as
// a semaphore of another size (P10). All that use it at a time are of one kind.
func (r *Record) mismatch(req driver.Request) error {
	var in driver.Request
	switch {
	case len(r.Holds) > 0:
		in = r.Holds[0].Request
	case len(r.Queue) > 0:
		in = r.Queue[0].Request
	default:
		return nil
	}
	if in.Slots == req.Slots { // 0 of what is no semaphore
		return nil
	}
	return driver.Mismatch(in.Slots, req.Slots)
}

// heldError says why a request is not granted, and when to ask again.
func (r *Record) heldError(name string, now driver.Instant, rules *Rules) *driver.HeldError {
	e := &driver.HeldError{Name: name, Queued: r.queued()}
	for i := range r.Holds {
		h := &r.Holds[i]
		if !h.Closed {
			e.Note, e.Token = h.Note, h.Token
		}
		opens := h.Expires.Sub(now)
		if !h.Closed {
			opens = h.opens().Sub(now)
		}
		if e.ExpiresIn == 0 || opens < e.ExpiresIn {
			e.ExpiresIn = opens
		}
	}
	e.Forgotten = max(0, rules.Opens.Sub(now))
	e.ExpiresIn = max(e.ExpiresIn, e.Forgotten)
	return e
}

// reserve gives out n tokens, at least one, and returns the first. They are higher than
// all before them, and than those of a record that was forgotten (see Rules.Last), as long
// as the clock has not gone back past them (P3).
func (rules *Rules) reserve(n int) (first driver.Token) {
	first = max(*rules.Last+1, rules.Least)
	*rules.Last = first + driver.Token(max(n, 1)) - 1
	return first
}

// giveBack makes the tokens that are reserved for the hold and were not used available
// again, so that a hybrid clock is not driven ahead of the time. Used is the last that
// was used. If others were given out after them, they are lost.
func (rules *Rules) giveBack(h *Hold, used driver.Token) {
	if *rules.Last == h.Last && h.Token <= used && used < h.Last {
		*rules.Last = used
	}
}

// Grant describes a hold of the record to its owner.
func (r *Record) Grant(h *Hold) driver.Grant {
	return driver.Grant{
		Request: h.Request, Token: h.Token, Block: int(max(h.Last-h.Token, 0)) + 1, Contended: r.queued() > 0,
		Since: h.Since, Valid: h.Valid, Claim: h.Claim,
	}
}

// extend starts the TTL of a hold again. Its owner has heard of it, so it is no claim.
func (h *Hold) extend(sent, now driver.Instant) {
	h.Expires, h.Claim = now.Add(h.TTL), false
	h.Since, h.Valid = sent, h.TTL
}

// Renew starts the TTL of the owner's hold again and returns the hold, or nil
// if there is none: an expired one is not revived.
func (r *Record) Renew(owner string, sent, now driver.Instant) *Hold {
	h := r.Held(owner)
	if h != nil {
		h.extend(sent, now)
	}
	return h
}

// HandedOver takes over the token of a grant that was handed over inside its owner's process
// (P3): the hold goes on under the same owner. A lower one comes from a renewal that was
// overtaken, and changes nothing.
func (h *Hold) HandedOver(g *driver.Grant) {
	if g.HandedOver {
		h.Token = max(h.Token, g.Token)
	}
}

// Raise is Renew, and gives the hold the token of the grant, whatever it had before; 0: it keeps that. Tokens
// that are given out from then on are higher than all of them.
func (r *Record) Raise(g *driver.Grant, sent, now driver.Instant, rules *Rules) *Hold {
	h := r.Renew(g.Owner, sent, now)
	if h != nil && g.Token > 0 {
		h.Token, h.Last = g.Token, g.Token
		*rules.Last = max(*rules.Last, g.Token)
	}
	return h
}

// Release ends the owner's hold, withdraws its place, and reports whether there was a hold.
// Used is the last token of the hold's block that was used; 0 if that is not known. With a
// minimum hold the name stays closed until that is over, else it is free at once. If the
// clock was set back since the hold was taken, the name is closed for no longer than the minimum hold,
// counted from the release.
func (r *Record) Release(owner string, minHold time.Duration, used driver.Token, now driver.Instant, rules *Rules) bool {
	h := r.Held(owner)
	if h != nil {
		rules.giveBack(h, used)
		if until := min(h.Taken, now).Add(minHold); now < until {
			h.close(until)
			h.LockDelay, h.MinHold = 0, minHold
		} else {
			r.removeHold(owner)
		}
	}
	r.removePlace(owner, now, rules)
	return h != nil
}

// Downgrade makes the owner's hold a shared one, with a fresh TTL, and returns it, or nil if
// there is none. It keeps its token; readers that come in get higher ones.
func (r *Record) Downgrade(owner string, sent, now driver.Instant) *Hold {
	h := r.Renew(owner, sent, now)
	if h != nil {
		h.Mode = driver.Shared
	}
	return h
}

// Break ends the live hold with this token and returns it as it was. It reports false when
// there is none (P4). All of its tokens count as used.
func (r *Record) Break(token driver.Token) (Hold, bool) {
	for _, h := range r.Holds {
		if !h.Closed && h.Token == token {
			r.removeHold(h.Owner)
			return h, true
		}
	}
	return Hold{}, false
}

// Held returns the owner's live hold, or nil.
func (r *Record) Held(owner string) *Hold {
	for i := range r.Holds {
		if !r.Holds[i].Closed && r.Holds[i].Owner == owner {
			return &r.Holds[i]
		}
	}
	return nil
}

// Queued returns the owner's place, or nil.
func (r *Record) Queued(owner string) *Place {
	for i := range r.Queue {
		if r.Queue[i].Owner == owner {
			return &r.Queue[i]
		}
	}
	if r.Far != nil && r.Far.Owner == owner {
		return r.Far
	}
	return nil
}

func (r *Record) removeHold(owner string) {
	r.Holds = slices.DeleteFunc(r.Holds, func(h Hold) bool { return !h.Closed && h.Owner == owner })
}

func (r *Record) removePlace(owner string, now driver.Instant, rules *Rules) {
	if i := slices.IndexFunc(r.Queue, func(p Place) bool { return p.Owner == owner }); i >= 0 {
		r.leave(i, now, rules)
	}
	if r.Far != nil && r.Far.Owner == owner {
		r.Far = nil
		r.Unloaded--
	}
}

// Idle reports whether nobody holds the name, waits for it or has closed it.
func (r *Record) Idle() bool { return len(r.Holds) == 0 && r.queued() == 0 }

// Info describes the record to operators.
func (r *Record) Info(name string, now driver.Instant) driver.Info {
	info := driver.Info{Name: name}
	for i := range r.Holds {
		h := &r.Holds[i]
		info.Slots = h.Slots
		if h.Closed {
			info.ClosedFor = max(info.ClosedFor, h.Expires.Sub(now))
			continue
		}
		info.Holders = append(info.Holders, driver.Holder{
			Owner: h.Owner, Mode: h.Mode, Permits: h.Permits, Token: h.Token, Note: h.Note,
			Held: now.Sub(h.Taken), Expires: h.Expires.Sub(now),
		})
	}
	for i := range r.Queue {
		p := &r.Queue[i]
		info.Slots = p.Slots
		info.Waiters = append(info.Waiters, driver.Waiter{
			Owner: p.Owner, Mode: p.Mode, Permits: p.Permits, Note: p.Note, Waiting: now.Sub(p.Joined),
		})
	}
	return info
}
