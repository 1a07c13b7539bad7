package memlock

import (
	"slices"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// record is the state of one name. Its methods are the specification of what a
// store does: they take the time and change the record, and nothing else. Each
// is called with the record settled.
type record struct {
	holds []hold  // live holds, and closed ones that still keep others out
	queue []place // waiters in order of arrival

	first [1]hold // where holds begins, to spare an allocation
}

// hold is one hold, or what a hold left behind: a closed one has no owner any
// more but keeps others out until it ends (lock-delay, minimum hold).
type hold struct {
	driver.Request
	closed  bool
	token   driver.Token
	taken   driver.Instant
	expires driver.Instant // unless renewed; of a closed one: when it ends
	since   driver.Instant // as in driver.Grant, for the TTL now running
	valid   time.Duration
}

// place is one waiter's place in the queue.
type place struct {
	driver.Request
	joined driver.Instant
	seen   driver.Instant // when it last showed a sign of life
	asked  driver.Instant // the sending of its last request, which we have answered
	wake   chan struct{}  // gets one value when the place is granted
}

// settle brings the record up to now: holds that nobody renewed end, waiters
// that nobody confirms are dropped, and whoever comes first is granted what is
// free. Waiters therefore need no timer of the store's own: the first to ask
// again moves the queue (P7).
func (r *record) settle(now driver.Instant, poll time.Duration, next func() driver.Token) {
	kept := r.holds[:0]
	for _, h := range r.holds {
		if !h.closed && now >= h.expires {
			// Vanished: closed for the lock-delay, counted from the expiry,
			// not from when somebody happened to look.
			h.closed, h.Owner = true, ""
			h.expires = h.expires.Add(h.LockDelay)
		}
		if !h.closed || now < h.expires {
			kept = append(kept, h)
		}
	}
	clear(r.holds[len(kept):])
	r.holds = kept
	r.queue = slices.DeleteFunc(r.queue, func(p place) bool {
		return now.Sub(p.seen) > 2*poll
	})
	for len(r.queue) > 0 && r.admits(r.queue[0].Request) {
		r.handOver(now, 2*poll, next())
	}
}

// admits reports whether a hold for req can stand beside those there are (P1).
func (r *record) admits(req driver.Request) bool {
	permits := req.Permits
	for i := range r.holds {
		h := &r.holds[i]
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
func (r *record) handOver(now driver.Instant, claim time.Duration, token driver.Token) {
	p := r.queue[0]
	r.queue = slices.Delete(r.queue, 0, 1)
	claim = min(claim, p.TTL)
	r.holds = append(r.holds, hold{
		Request: p.Request, token: token, taken: now, expires: now.Add(claim),
		// The winner counts from a request that it sent before this moment,
		// never from the arrival of the news (P1).
		since: p.asked, valid: claim,
	})
	p.wake <- struct{}{}
}

// take grants req directly.
func (r *record) take(req driver.Request, sent, now driver.Instant, token driver.Token) *hold {
	r.holds = append(r.holds, hold{
		Request: req, token: token, taken: now, expires: now.Add(req.TTL),
		since: sent, valid: req.TTL,
	})
	return &r.holds[len(r.holds)-1]
}

// extend starts the TTL of a hold again.
func (h *hold) extend(sent, now driver.Instant) {
	h.expires = now.Add(h.TTL)
	h.since, h.valid = sent, h.TTL
}

// mismatched reports whether the name is in use as another kind of lock, or as
// a semaphore of another size (P10).
func (r *record) mismatched(req driver.Request) bool {
	other := func(in driver.Request) bool {
		return (in.Mode == driver.Slot) != (req.Mode == driver.Slot) || in.Slots != req.Slots
	}
	return slices.ContainsFunc(r.holds, func(h hold) bool { return other(h.Request) }) ||
		slices.ContainsFunc(r.queue, func(p place) bool { return other(p.Request) })
}

// held returns the owner's live hold, or nil.
func (r *record) held(owner string) *hold {
	for i := range r.holds {
		if !r.holds[i].closed && r.holds[i].Owner == owner {
			return &r.holds[i]
		}
	}
	return nil
}

// queued returns the owner's place, or nil.
func (r *record) queued(owner string) *place {
	for i := range r.queue {
		if r.queue[i].Owner == owner {
			return &r.queue[i]
		}
	}
	return nil
}

// release ends the owner's hold. Before its minimum hold is over the name
// stays closed until then.
func (r *record) release(h *hold, minHold time.Duration, now driver.Instant) {
	if until := h.taken.Add(minHold); now < until {
		h.closed, h.Owner, h.expires = true, "", until
		return
	}
	r.remove(h)
}

func (r *record) remove(h *hold) {
	r.holds = slices.DeleteFunc(r.holds, func(in hold) bool {
		return !in.closed && in.Owner == h.Owner
	})
}

func (r *record) leave(owner string) {
	r.queue = slices.DeleteFunc(r.queue, func(p place) bool { return p.Owner == owner })
}

func (r *record) idle() bool { return len(r.holds) == 0 && len(r.queue) == 0 }

// info describes the record to operators.
func (r *record) info(name string, now driver.Instant) driver.Info {
	info := driver.Info{Name: name}
	for i := range r.holds {
		h := &r.holds[i]
		info.Slots = h.Slots
		if h.closed {
			info.ClosedFor = max(info.ClosedFor, h.expires.Sub(now))
			continue
		}
		info.Holders = append(info.Holders, driver.Holder{
			Owner: h.Owner, Mode: h.Mode, Permits: h.Permits, Token: h.token, Note: h.Note,
			Held: now.Sub(h.taken), Expires: h.expires.Sub(now),
		})
	}
	for i := range r.queue {
		p := &r.queue[i]
		info.Slots = p.Slots
		info.Waiters = append(info.Waiters, driver.Waiter{
			Owner: p.Owner, Mode: p.Mode, Permits: p.Permits, Note: p.Note, Waiting: now.Sub(p.joined),
		})
	}
	return info
}

// heldError says why a request is not granted, and when to ask again.
func (r *record) heldError(name string, now driver.Instant) error {
	e := &driver.HeldError{Name: name, Queued: len(r.queue)}
	for i := range r.holds {
		h := &r.holds[i]
		if !h.closed {
			e.Note, e.Token = h.Note, h.token
		}
		opens := h.expires.Sub(now)
		if !h.closed {
			opens += h.LockDelay
		}
		if e.ExpiresIn == 0 || opens < e.ExpiresIn {
			e.ExpiresIn = opens
		}
	}
	return e
}
