package celllock

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/pause"
)

// state is what the client knows of a request.
type state uint8

const (
	asking  state = iota // a call is under way, or nobody knows what became of one
	queued               // it has a place
	held                 // it has a hold
	leaving              // its time was over, and it is being released
)

// key names a request in the cell.
type key struct{ name, request string }

// record is what the client knows of a request. Its session outlives a single hold or place, so the
// client itself releases what nobody has renewed or confirmed for long enough; if the client has died,
// the session ends. The client's mutex guards it.
type record struct {
	key
	owner     string
	session   *session
	state     state
	asks      int          // calls that are under way
	revision  int64        // of the hold or place; 0: not known
	token     driver.Token // the first of the hold
	claim     bool         // the hold is on the lease of places
	contended bool
	ahead     int            // of a place, as it was told last
	places    cell.Extension // of the lease of places, as it was told of this request alone
	until     driver.Instant // how long the hold or place stays unless it is renewed or confirmed; 0: not limited
	delay     time.Duration  // the part of that for which the hold is not trusted any more
	news      chan struct{}  // one value: something has changed
}

// requestID returns the owner as the cell takes it.
func requestID(owner string) string {
	if owner != "" && len(owner) <= 64 && strings.Trim(owner, requestLetters) == "" {
		return owner
	}
	sum := sha256.Sum256([]byte(owner))
	return "h." + hex.EncodeToString(sum[:])[:60]
}

const requestLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

func (c *client) keyOf(name, owner string) key { return key{c.in(name), requestID(owner)} }

// record returns what is known of an owner, or nil.
func (c *client) recordLocked(name, owner string) *record { return c.records[c.keyOf(name, owner)] }

// begin returns the record of a request, made if there is none, for a call that is about to be made.
// End ends it. It is nil if the request is over, or was made in another session.
func (c *client) begin(r *driver.Request, s *session) *record {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.keyOf(r.Name, r.Owner)
	rec := c.records[k]
	if rec == nil {
		rec = &record{key: k, owner: r.Owner, session: s, news: make(chan struct{}, 1)}
		c.records[k] = rec
	}
	if rec.session != s || rec.state == leaving {
		return nil
	}
	rec.asks++
	return rec
}

// end ends a call without a hold or a place. Certain says that the call has left nothing in the cell.
func (c *client) end(r *record, certain bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.asks--; r.asks == 0 && r.state == asking && certain {
		c.forgetLocked(r)
	}
}

// forgetLocked forgets a request, and wakes who waits for its place.
func (c *client) forgetLocked(r *record) {
	if c.records[r.key] == r {
		delete(c.records, r.key)
	}
	r.state, r.revision, r.until, r.places = asking, 0, 0, cell.Extension{}
	r.wakeLocked()
}

func (r *record) wakeLocked() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// takeLocked takes in what the cell says that the request has.
func (c *client) takeLocked(r *record, h *cellv1.Holding) {
	if r.state == leaving || r.revision != 0 && r.revision != h.Revision {
		return // it is old, or of another hold; the record's own is told to be lost by itself
	}
	c.records[r.key] = r // it may have been forgotten meanwhile
	r.revision = h.Revision
	if h.Token == 0 {
		if r.state == asking {
			r.state, r.ahead = queued, int(h.Ahead)
		}
		return
	}
	r.claim = h.Claim
	if r.state != held {
		r.state, r.token, r.contended = held, driver.Token(h.Token)&^(block-1), h.Contended
		if r.claim { // unless somebody takes it
			e := r.placesLocked()
			r.delay, r.until = 0, e.Since.Add(e.Valid)
			c.timer.Set(r.until)
		}
	}
	r.wakeLocked()
}

// grantLocked returns the hold to who has asked for it, and begins its time.
func (c *client) grantLocked(r *record, req *driver.Request) driver.Grant {
	g := driver.Grant{
		Request: *req, Token: r.token, Block: min(max(req.Tokens, 1), block), Contended: r.contended, Claim: r.claim, Handle: r.session,
	}
	g.Since, g.Valid = r.lastsLocked(req)
	c.lastsUntilLocked(r, req, g.Since.Add(g.Valid))
	return g
}

// lastsUntilLocked notes until when a hold is trusted unless it is renewed. Its name stays closed for
// its lock-delay, unless it is a claim that nobody has renewed.
func (c *client) lastsUntilLocked(r *record, req *driver.Request, trusted driver.Instant) {
	if r.delay = req.LockDelay; r.claim {
		r.delay = 0
	}
	r.until = trusted.Add(r.delay)
	c.timer.Set(r.until)
}

// lastsLocked returns from when on and for how long the hold may be trusted: a claim as long as places, and no
// longer than its session, with which it ends.
func (r *record) lastsLocked(req *driver.Request) (since driver.Instant, valid time.Duration) {
	whole := r.session.of.Trusted()
	if e := r.placesLocked(); r.claim && e.Since.Add(min(e.Valid, req.TTL)) < whole.Since.Add(whole.Valid) {
		return e.Since, min(e.Valid, req.TTL)
	}
	return whole.Since, req.TTL
}

// placesLocked returns for how long a claim lasts at least. Calls about one request do not tell what has become
// of others, as the parked call does: so what they confirm says nothing of those.
func (r *record) placesLocked() cell.Extension {
	if e := r.session.of.Places(); e.Since > r.places.Since {
		return e
	}
	return r.places
}

// placedLocked notes that a place was confirmed by a call that was sent then.
func (c *client) placedLocked(r *record, sent driver.Instant) {
	r.until = sent.Add(c.caps.PlaceLife(r.ahead))
	c.timer.Set(r.until)
}

// sweep releases what nobody has renewed or confirmed. The timer calls it. It visits all records, and
// not often: a hold is renewed long before its time is over.
func (c *client) sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		return
	}
	now, next := c.clock.Now(), driver.Instant(math.MaxInt64)
	var over []driver.Grant
	for _, r := range c.records {
		switch {
		case r.until == 0:
		case r.until > now:
			next = min(next, r.until)
		case r.asks > 0: // what is under way may be its sign of life
			next = min(next, now.Add(sweepPause))
		default:
			// A minimum hold goes on. Of a claim nobody knows whether its work has begun: it has none.
			g := driver.Grant{Request: driver.Request{Owner: r.owner, MinHold: 1}, Token: r.token, Handle: r.session}
			if g.Name = c.out(r.name); r.state != held || r.claim {
				g.MinHold = 0
			}
			r.state, r.until = leaving, 0
			r.wakeLocked()
			over = append(over, g)
		}
	}
	if next != math.MaxInt64 {
		c.timer.Set(max(next, now.Add(sweepPause)))
	}
	if over != nil {
		c.working.Go(func() { c.drop(over) })
	}
}

// drop releases what nobody wants any more, until the cell confirms it. If that takes as long as the
// session lasts, the session has ended.
func (c *client) drop(over []driver.Grant) {
	for len(over) > 0 {
		ctx, cancel := context.WithTimeout(c.life, requestWithin)
		errs := c.Release(ctx, over)
		cancel()
		left := over[:0]
		for i, err := range errs {
			if err != nil && !driver.Gone(err) {
				left = append(left, over[i])
			}
		}
		if over = left; len(over) == 0 || !pause.Sleep(c.life, dropPause) {
			return
		}
	}
}

// The time between two attempts to release what is over, and at least between two sweeps.
const (
	dropPause  = 200 * time.Millisecond
	sweepPause = 20 * time.Millisecond
)
