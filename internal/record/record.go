// Package record is the specification of what a store does with one name: who
// holds it, who waits for it, and every step from one state to the next.
//
// A [Record] is a plain value. Its methods take the time and change it, and do
// nothing else: no clock, lock, file or goroutine is in here. A store keeps
// records somewhere, lets one operation at a time at each, and does what
// [Rules] tells it of. The methods expect a record that is settled at the same
// instant ([Record.Settle]); operations that free something end with another
// Settle, so that whoever is next gets it in the same step.
package record

import (
	"slices"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Record is the state of one name. The zero value is a name that nobody uses.
// Not safe for concurrent use.
type Record struct {
	Holds []Hold  // live holds, and closed ones that still keep others out
	Queue []Place // waiters in order of arrival
}

// Hold is one hold, or what a hold left behind: a closed one has no owner any
// more but keeps others out until it ends (lock-delay, minimum hold).
type Hold struct {
	driver.Request
	Client  string // whose death ends the hold; "" where the store does not look for it
	Closed  bool
	Token   driver.Token
	Last    driver.Token // the last of the tokens that are reserved for it; 0: Token is
	Taken   driver.Instant
	Expires driver.Instant // unless renewed; of a closed one: when it ends
	Since   driver.Instant // as in driver.Grant, for the TTL now running; by the owner's clock
	Valid   time.Duration
	// Claim says that the hold was handed over and that its winner has not renewed it:
	// it may never have heard of it.
	Claim bool
}

// Place is one waiter's place in the queue.
type Place struct {
	driver.Request
	Client string // whose death ends the place, as in Hold
	Joined driver.Instant
	Seen   driver.Instant // when it last showed a sign of life
	Asked  driver.Instant // the sending of its last request, which we have answered; by the owner's clock
	// Wake is where a store in the waiter's own process signals a grant. This
	// package does not touch it.
	Wake chan struct{}
}

// Rules are what a record does not know by itself.
type Rules struct {
	Poll    time.Duration            // the store's driver.Caps.Poll
	Last    *driver.Token            // the last token that was given out or reserved, of this name or of all
	Least   driver.Token             // a new token is at least this: the present time, where tokens are a hybrid clock
	Granted func(*Place)             // told of each place that is granted; the place is gone when it returns
	Alive   func(client string) bool // false: the client is dead for certain. nil: nobody can tell
}

// Settle brings the record up to now: holds that nobody renewed or whose client
// is dead end, waiters that nobody confirms or whose client is dead are
// dropped, and whoever comes first is granted what is free. Waiters therefore
// need no timer of the store's own: the first to ask again moves the queue (P7).
func (r *Record) Settle(now driver.Instant, rules *Rules) {
	dead := func(client string) bool {
		return client != "" && rules.Alive != nil && !rules.Alive(client)
	}
	kept := r.Holds[:0]
	for _, h := range r.Holds {
		if !h.Closed && now < h.Expires && dead(h.Client) {
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
	r.Queue = slices.DeleteFunc(r.Queue, func(p Place) bool {
		return now.Sub(p.Seen) > 2*rules.Poll || dead(p.Client)
	})
	for len(r.Queue) > 0 && r.admits(r.Queue[0].Request) {
		r.handOver(now, rules)
	}
}

// opens returns when the hold's name opens if the hold vanishes at its expiry: after
// its lock-delay, counted from the expiry and not from when somebody happens to look,
// and not before its minimum hold is over. A claim has no minimum: suppose its winner
// died while it waited; then it has begun nothing, and delays nobody further (P7). A
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

// handOver grants the first place of the queue. The hold is a claim, short
// enough that a winner who has stopped cannot sit on it, until its first
// renewal.
func (r *Record) handOver(now driver.Instant, rules *Rules) {
	p := r.Queue[0]
	r.Queue = slices.Delete(r.Queue, 0, 1)
	claim := min(2*rules.Poll, p.TTL)
	first := rules.reserve(p.Tokens)
	r.Holds = append(r.Holds, Hold{
		Request: p.Request, Client: p.Client, Token: first, Last: *rules.Last, Taken: now, Expires: now.Add(claim), Claim: true,
		// The winner counts from a request that it sent before this moment,
		// never from the arrival of the news (P1).
		Since: p.Asked, Valid: claim,
	})
	rules.Granted(&p)
}

// Ask takes the hold for req or, with queue, confirms or takes its place; it is
// idempotent by owner. Sent is the instant before the request was sent, by the
// owner's clock. The errors are those of driver.Queuer.Enqueue and of
// driver.Driver.Try.
func (r *Record) Ask(req driver.Request, client string, queue bool, sent, now driver.Instant, rules *Rules) (*Hold, error) {
	if h := r.Held(req.Owner); h != nil {
		h.extend(sent, now)
		return h, nil
	}
	p := r.Queued(req.Owner)
	if p == nil && r.mismatched(req) {
		return nil, driver.ErrMismatch
	}
	// Settle has granted the head of the queue what it could, so whoever is
	// still queued has to wait, and others behind it unless unfair (P8).
	if r.admits(req) && (len(r.Queue) == 0 || req.Unfair) {
		r.leave(req.Owner)
		return r.take(req, client, sent, now, rules), nil
	}
	switch {
	case p != nil:
		p.Seen, p.Asked, p.Tokens = now, sent, req.Tokens
	case queue:
		r.Queue = append(r.Queue, Place{Request: req, Client: client, Joined: now, Seen: now, Asked: sent})
	}
	return nil, r.heldError(req.Name, now)
}

// take grants req directly.
func (r *Record) take(req driver.Request, client string, sent, now driver.Instant, rules *Rules) *Hold {
	first := rules.reserve(req.Tokens)
	r.Holds = append(r.Holds, Hold{
		Request: req, Client: client, Token: first, Last: *rules.Last, Taken: now, Expires: now.Add(req.TTL),
		Since: sent, Valid: req.TTL,
	})
	return &r.Holds[len(r.Holds)-1]
}

// extend starts the TTL of a hold again. Its owner has it now.
func (h *Hold) extend(sent, now driver.Instant) {
	h.Expires, h.Claim = now.Add(h.TTL), false
	h.Since, h.Valid = sent, h.TTL
}

// Grant describes a hold of the record to its owner.
func (r *Record) Grant(h *Hold) driver.Grant {
	return driver.Grant{
		Request: h.Request, Token: h.Token, Block: int(max(h.Last-h.Token, 0)) + 1, Contended: len(r.Queue) > 0,
		Since: h.Since, Valid: h.Valid,
	}
}

// reserve gives out n tokens, at least one, and returns the first. They are higher than
// all before them, and than those of a record that was forgotten, as long as the clock
// has not gone back past them (P3).
func (rules *Rules) reserve(n int) (first driver.Token) {
	first = max(*rules.Last+1, rules.Least)
	*rules.Last = first + driver.Token(max(n, 1)) - 1
	return first
}

// giveBack makes the tokens that are reserved for the hold and were not used available
// again, so that a hybrid clock is not driven ahead of the time. Used is the last that
// was. If others were given out after them, they are lost.
func (rules *Rules) giveBack(h *Hold, used driver.Token) {
	if *rules.Last == h.Last && h.Token <= used && used < h.Last {
		*rules.Last = used
	}
}

// mismatched reports whether the name is in use as another kind of lock, or as
// a semaphore of another size (P10).
func (r *Record) mismatched(req driver.Request) bool {
	other := func(in driver.Request) bool {
		return (in.Mode == driver.Slot) != (req.Mode == driver.Slot) || in.Slots != req.Slots
	}
	return slices.ContainsFunc(r.Holds, func(h Hold) bool { return other(h.Request) }) ||
		slices.ContainsFunc(r.Queue, func(p Place) bool { return other(p.Request) })
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
	return nil
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

// PassedOn takes over the token of a grant that was handed on inside its owner's
// process (P3): the hold goes on under the same owner.
func (h *Hold) PassedOn(g *driver.Grant) {
	if g.Passed {
		h.Token = max(h.Token, g.Token)
	}
}

// Release ends the owner's hold and withdraws its place, and reports whether
// there was a hold. Before the minimum hold is over the name stays closed until
// then; with none it is free at once. Suppose the clock was set back by an hour
// since the hold was taken: the name is closed for no longer than the minimum hold,
// counted from the release. Used is the last token of its block that was used, or 0.
func (r *Record) Release(owner string, minHold time.Duration, used driver.Token, now driver.Instant, rules *Rules) bool {
	h := r.Held(owner)
	if h != nil {
		rules.giveBack(h, used)
		if until := min(h.Taken, now).Add(minHold); now < until {
			h.close(until)
			h.LockDelay, h.MinHold = 0, minHold
		} else {
			r.remove(owner)
		}
	}
	r.leave(owner)
	return h != nil
}

// Downgrade makes the owner's hold a shared one, with a fresh TTL, and returns
// it, or nil if there is none.
func (r *Record) Downgrade(owner string, sent, now driver.Instant) *Hold {
	h := r.Renew(owner, sent, now)
	if h != nil {
		h.Mode = driver.Shared
	}
	return h
}

// Annotate changes the note of the owner's hold and reports whether there is one.
func (r *Record) Annotate(owner, note string) bool {
	h := r.Held(owner)
	if h != nil {
		h.Note = note
	}
	return h != nil
}

// Break ends the live hold with this token and returns it as it was. It reports
// false when there is none (P4).
func (r *Record) Break(token driver.Token) (Hold, bool) {
	for _, h := range r.Holds {
		if !h.Closed && h.Token == token {
			r.remove(h.Owner)
			return h, true
		}
	}
	return Hold{}, false
}

func (r *Record) remove(owner string) {
	r.Holds = slices.DeleteFunc(r.Holds, func(h Hold) bool { return !h.Closed && h.Owner == owner })
}

func (r *Record) leave(owner string) {
	r.Queue = slices.DeleteFunc(r.Queue, func(p Place) bool { return p.Owner == owner })
}

// Idle reports whether nobody holds the name, waits for it or has closed it.
func (r *Record) Idle() bool { return len(r.Holds) == 0 && len(r.Queue) == 0 }

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

// heldError says why a request is not granted, and when to ask again.
func (r *Record) heldError(name string, now driver.Instant) error {
	e := &driver.HeldError{Name: name, Queued: len(r.Queue)}
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
	return e
}
