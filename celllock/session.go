package celllock

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/pause"
)

// class is what the holds of one session have in common.
type class struct {
	seconds   int64 // of the TTL
	lockDelay time.Duration
}

func classOf(r *driver.Request) class {
	return class{int64((r.TTL + time.Second - 1) / time.Second), r.LockDelay}
}

// session is the session of a class. It is opened by the first request that needs it. It observes itself.
type session struct {
	client *client
	ready  chan struct{} // closed when it is open, or could not be opened
	*cell.Session
	err  error
	over bool // guarded by the client's mutex
}

// sessionFor returns the session of a class, opened if it is not.
func (c *client) sessionFor(ctx context.Context, k class) (*session, error) {
	c.mu.Lock()
	if c.life.Err() != nil {
		c.mu.Unlock()
		return nil, driver.ErrClosed
	}
	s := c.sessions[k]
	if s == nil || s.over {
		s = &session{client: c, ready: make(chan struct{})}
		c.sessions[k] = s
		c.working.Go(func() { s.open(k) })
	}
	c.mu.Unlock()
	select {
	case <-s.ready:
		return s, s.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// open opens the session, whether who has asked for it still waits or not. If that fails the next request tries again.
func (s *session) open(k class) {
	defer close(s.ready)
	c := s.client
	ctx, cancel := context.WithTimeout(c.life, requestWithin)
	defer cancel()
	s.Session, s.err = c.cell.Open(ctx, cell.SessionOptions{
		TTL: time.Duration(k.seconds) * time.Second, LockDelay: k.lockDelay, Note: c.note, Observer: s,
	})
	if s.err != nil {
		c.mu.Lock()
		s.over = true
		c.mu.Unlock()
	}
}

// Over implements cell.Observer. The holds of the session are lost, and its places worth nothing.
func (s *session) Over(why error) {
	c := s.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.over {
		return
	}
	s.over = true
	loss := driver.Loss{Err: fmt.Errorf("%w: %w", driver.ErrNotHeld, why)}
	for _, r := range c.records {
		if r.session == s {
			if r.held() {
				loss.Owners = append(loss.Owners, r.request)
			}
			c.forgetLocked(r)
		}
	}
	c.tellLocked(loss)
}

// Event implements cell.Observer.
func (s *session) Event(e *cellv1.Event) {
	c := s.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := e.GetGranted(); h != nil {
		if r := c.records[key{h.Name, h.Request}]; r != nil && r.session == s {
			c.takeLocked(r, h)
		}
	}
	if l := e.GetLost(); l != nil {
		if r := c.records[key{l.Name, l.Request}]; r != nil && r.session == s && r.has.GetRevision() == l.Revision {
			c.lostLocked(r, l.Reason)
		}
	}
}

// Complete implements cell.Observer. What the cell does not list has gone unnoticed (P2).
func (s *session) Complete(all []*cellv1.Holding, revision int64) {
	c := s.client
	c.mu.Lock()
	defer c.mu.Unlock()
	there := make(map[key]bool, len(all))
	for _, h := range all {
		k := key{h.Name, h.Request}
		there[k] = true
		if r := c.records[k]; r != nil && r.session == s {
			c.takeLocked(r, h)
		}
	}
	for k, r := range c.records {
		if r.session == s && !there[k] && r.has != nil && r.has.Revision <= revision {
			c.lostLocked(r, cellv1.Reason_REASON_NOT_HELD)
		}
	}
}

// lostLocked notes that a hold or a place is gone.
func (c *client) lostLocked(r *record, reason cellv1.Reason) {
	if r.held() {
		why := driver.ErrNotHeld
		if reason == cellv1.Reason_REASON_BROKEN {
			why = driver.ErrBroken
		}
		c.tellLocked(driver.Loss{Owners: []string{r.request}, Err: why})
	}
	c.forgetLocked(r)
}

// key names a request in the cell: a name there, and the owner, which is letters and digits as package holdfast makes it.
type key struct{ name, request string }

func (c *client) keyOf(name, owner string) key { return key{c.prefix + name, owner} }

// out returns a name of the cell without the prefix.
func (c *client) out(name string) string { return strings.TrimPrefix(name, c.prefix) }

// record is what the client knows of a request. Its session outlives a single hold or place, so the
// client itself releases what nobody has renewed or confirmed for long enough; if the client has died,
// the session ends. The client's mutex guards it.
type record struct {
	key
	session *session
	asks    int             // calls that are under way
	has     *cellv1.Holding // its hold or place, as it was told last; nil: not known
	leaving bool            // its time was over, and it is being released
	places  cell.Extension  // of the lease of places, as it was told of this request alone
	until   driver.Instant  // how long the hold or place stays unless it is renewed or confirmed; 0: not limited
	delay   time.Duration   // the part of that for which the hold is not trusted any more
	news    chan struct{}   // one value: something has changed
}

func (r *record) held() bool   { return r.has.GetToken() != 0 && !r.leaving }
func (r *record) queued() bool { return r.has != nil && r.has.Token == 0 && !r.leaving }

// token is the first of the hold. A hand-over may have raised the one that the cell tells.
func (r *record) token() driver.Token { return driver.Token(r.has.GetToken()) &^ (block - 1) }

// recordLocked returns what is known of an owner, or nil.
func (c *client) recordLocked(name, owner string) *record { return c.records[c.keyOf(name, owner)] }

// forgetLocked forgets a request, and wakes who waits for its place.
func (c *client) forgetLocked(r *record) {
	if c.records[r.key] == r {
		delete(c.records, r.key)
	}
	r.has, r.leaving, r.until, r.places = nil, false, 0, cell.Extension{}
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
	wasHeld := r.held()
	if r.leaving || r.has != nil && r.has.Revision != h.Revision || wasHeld && h.Token == 0 {
		return // it is old, or of another hold; the record's own is told to be lost by itself
	}
	c.records[r.key] = r // it may have been forgotten meanwhile
	r.has = h
	if h.Claim && !wasHeld { // unless somebody takes it
		since, valid := r.lastsLocked(maxTTL)
		c.endsLocked(r, since.Add(valid), 0)
	}
	r.wakeLocked()
}

// grantLocked returns the hold to who has asked for it, and begins its time.
func (c *client) grantLocked(r *record, req *driver.Request) driver.Grant {
	g := driver.Grant{
		Request: *req, Token: r.token(), Block: min(max(req.Tokens, 1), block), Contended: r.has.Contended, Claim: r.has.Claim,
		Handle: r.session,
	}
	g.Since, g.Valid = r.lastsLocked(req.TTL)
	c.endsLocked(r, g.Since.Add(g.Valid), req.LockDelay)
	return g
}

// endsLocked notes until when a hold or place lasts unless it is renewed or confirmed. The name of a hold that ends so
// stays closed for its lock-delay, unless it is a claim that nobody has renewed.
func (c *client) endsLocked(r *record, until driver.Instant, delay time.Duration) {
	if r.has.GetClaim() {
		delay = 0
	}
	r.until, r.delay = until.Add(delay), delay
	c.timer.Set(r.until)
}

// lastsLocked returns from when on and for how long the hold may be trusted: a claim as long as places, and no longer
// than its session, with which it ends (P1). What a call about this request has confirmed counts for its places alone:
// the parked call tells what has become of others.
func (r *record) lastsLocked(ttl time.Duration) (since driver.Instant, valid time.Duration) {
	whole, places := r.session.Trusted()
	if r.places.Since > places.Since {
		places = r.places
	}
	if valid := min(places.Valid, ttl); r.has.GetClaim() && places.Since.Add(valid) < whole.Since.Add(whole.Valid) {
		return places.Since, valid
	}
	return whole.Since, min(whole.Valid, ttl)
}

// sweep releases what nobody has renewed or confirmed. The timer calls it. It visits all records, and
// not often: a hold is renewed long before its time is over.
func (c *client) sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
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
			g := driver.Grant{Request: driver.Request{Name: c.out(r.name), Owner: r.request}, Token: r.token(), Handle: r.session}
			if r.held() && !r.has.Claim {
				g.MinHold = 1
			}
			r.leaving, r.until = true, 0
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
	for {
		var left []driver.Grant
		for i, err := range c.Release(c.life, over) {
			if err != nil && !driver.Gone(err) {
				left = append(left, over[i])
			}
		}
		if over = left; over == nil || !pause.Sleep(c.life, dropPause) {
			return
		}
	}
}

// The time between two attempts to release what is over, and at least between two sweeps.
const (
	dropPause  = 200 * time.Millisecond
	sweepPause = 20 * time.Millisecond
)
