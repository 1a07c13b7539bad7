package celllock

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/driver"
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
	class  class
	ready  chan struct{} // closed when it is open, or could not be opened
	*cell.Session
	err  error
	over bool // guarded by the client's mutex
}

// sessionFor returns the session for a request, opened if it is not.
func (c *client) sessionFor(ctx context.Context, req *driver.Request) (*session, error) {
	k := classOf(req)
	c.mu.Lock()
	if c.life.Err() != nil {
		c.mu.Unlock()
		return nil, driver.ErrClosed
	}
	s := c.sessions[k]
	if s == nil || s.over {
		s = &session{client: c, class: k, ready: make(chan struct{})}
		c.sessions[k] = s
		c.working.Go(s.open)
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
func (s *session) open() {
	defer close(s.ready)
	c := s.client
	ctx, cancel := context.WithTimeout(c.life, requestWithin)
	defer cancel()
	s.Session, s.err = c.cell.Open(ctx, cell.SessionOptions{
		TTL: time.Duration(s.class.seconds) * time.Second, LockDelay: s.class.lockDelay, Note: c.note, Observer: s,
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
	if !s.over {
		s.over = true
		c.loseLocked(fmt.Errorf("%w: %w", driver.ErrNotHeld, why), s.recordsLocked()...)
	}
}

// Told implements cell.Observer.
func (s *session) Told(answer *cellv1.KeepAliveResponse) {
	c := s.client
	c.mu.Lock()
	defer c.mu.Unlock()
	find := func(name, request string) *record {
		if r := c.records[key{name, request}]; r != nil && r.session == s {
			return r
		}
		return nil
	}
	if answer.Complete { // what the cell does not list has gone unnoticed (P2)
		there := map[*record]bool{}
		for _, h := range answer.Holdings {
			if r := find(h.Name, h.Request); r != nil {
				there[r] = true
				c.takeLocked(r, h)
			}
		}
		c.loseLocked(driver.ErrNotHeld, slices.DeleteFunc(s.recordsLocked(), func(r *record) bool {
			return there[r] || !r.endedLocked(answer.Revision)
		})...)
	}
	for _, e := range answer.Events {
		granted, lost := e.GetGranted(), e.GetLost()
		if r := find(granted.GetName(), granted.GetRequest()); r != nil {
			c.takeLocked(r, granted)
		}
		if r := find(lost.GetName(), lost.GetRequest()); r != nil && r.endedLocked(lost.Revision) {
			why := driver.ErrNotHeld
			if lost.Reason == cellv1.Reason_REASON_BROKEN {
				why = driver.ErrBroken
			}
			c.loseLocked(why, r)
		}
	}
}

// recordsLocked returns the records of a session.
func (s *session) recordsLocked() (all []*record) {
	for _, r := range s.client.records {
		if r.session == s {
			all = append(all, r)
		}
	}
	return all
}

// loseLocked forgets requests whose holds or places are gone, and tells the losses if the channel has room: the next
// renewal tells them again.
func (c *client) loseLocked(why error, gone ...*record) {
	loss := driver.Loss{Err: why}
	for _, r := range gone {
		if r.held() {
			loss.Owners = append(loss.Owners, r.request)
		}
		c.forgetLocked(r)
	}
	if c.life.Err() != nil || loss.Owners == nil {
		return
	}
	select {
	case c.losses <- loss:
	default:
	}
}

// key names a request in the cell: a name there, and the owner, which is letters and digits as package holdfast makes it.
type key struct{ name, request string }

func (c *client) keyOf(req *driver.Request) key { return key{c.prefix + req.Name, req.Owner} }

// out returns a name of the cell without the prefix.
func (c *client) out(name string) string { return strings.TrimPrefix(name, c.prefix) }

// record is what the client knows of a request. Its session outlives a single hold or place, so the
// client itself releases what nobody has renewed or confirmed for long enough; if the client has died,
// the session ends. The client's mutex guards it.
type record struct {
	key
	session *session
	asks    int             // calls about it that are under way
	has     *cellv1.Holding // its hold or place, as it was told last; nil: not known
	ended   int64           // whatever it had up to this revision is gone, also what a late answer tells
	leaving bool            // its time was over, and it is being released
	places  cell.Extension  // of the lease of places, as it was told of this request alone
	until   driver.Instant  // how long the hold or place lasts unless it is renewed or confirmed; 0: not limited
	news    chan struct{}   // one value: something has changed
}

func (r *record) held() bool   { return r != nil && r.has.GetToken() != 0 && !r.leaving }
func (r *record) queued() bool { return r != nil && r.has != nil && r.has.Token == 0 && !r.leaving }

// endedLocked takes in that whatever the request had up to a revision is gone, and reports whether what it has is.
func (r *record) endedLocked(revision int64) bool {
	r.ended = max(r.ended, revision)
	return r.has != nil && r.has.Revision <= r.ended
}

// token is the first of the hold. A hand-over may have raised the one that the cell tells.
func (r *record) token() driver.Token { return driver.Token(r.has.GetToken()) &^ (block - 1) }

// closed is for how long the name stays closed when the hold or place has ended: for its lock-delay, unless somebody
// only waited, or has not begun to use what was granted.
func (r *record) closed() time.Duration {
	if !r.held() || r.has.Claim {
		return 0
	}
	return r.session.class.lockDelay
}

// recordLocked returns what is known of a request, or nil.
func (c *client) recordLocked(req *driver.Request) *record { return c.records[c.keyOf(req)] }

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

// takeLocked takes in what the cell says that the request has. What it had before at a lower revision is gone.
func (c *client) takeLocked(r *record, h *cellv1.Holding) {
	was := r.has.GetRevision()
	if r.leaving || h.Revision <= r.ended || h.Revision < was || h.Revision == was && r.held() && h.Token == 0 {
		return // it is old
	}
	if r.endedLocked(h.Revision - 1) {
		c.loseLocked(driver.ErrNotHeld, r)
	}
	c.records[r.key] = r // it may have been forgotten meanwhile
	r.has = h
	r.wakeLocked()
}

// grantLocked returns the hold to who has asked for it, and begins its time.
func (c *client) grantLocked(r *record, req *driver.Request) driver.Grant {
	g := driver.Grant{
		Request: *req, Token: r.token(), Block: min(max(req.Tokens, 1), block), Contended: r.has.Contended, Claim: r.has.Claim,
		Handle: r.session,
	}
	g.Since, g.Valid = r.lastsLocked(req.TTL)
	c.endsLocked(r, g.Since.Add(g.Valid))
	return g
}

// endsLocked notes until when a hold or place lasts unless it is renewed or confirmed.
func (c *client) endsLocked(r *record, until driver.Instant) {
	r.until = until
	c.timer.Set(until.Add(r.closed()))
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

// sweepPause is the time between two sweeps at least, and between two attempts to release what is over.
const sweepPause = 100 * time.Millisecond

// sweep releases what nobody has renewed or confirmed, until the cell says that it is gone. The timer calls it. It visits
// all records, and not often: a hold is renewed long before its time is over.
func (c *client) sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		return
	}
	now, next := c.clock.Now(), driver.Instant(math.MaxInt64)
	var over []*record
	for _, r := range c.records {
		if r.until == 0 {
			continue
		}
		end := r.until.Add(r.closed())
		if next = min(next, max(end, now.Add(sweepPause))); now >= end && r.asks == 0 { // a call may be its sign of life
			over = append(over, r)
			r.asks, r.leaving, r.until = 1, true, now
			r.wakeLocked()
		}
	}
	c.timer.Set(next)
	if over != nil {
		c.working.Go(func() { c.drop(over) })
	}
}

// drop releases what is over. What the cell has not confirmed stays, and is released again.
func (c *client) drop(over []*record) {
	grants := make([]driver.Grant, len(over))
	c.mu.Lock()
	for i, r := range over {
		grants[i] = driver.Grant{Request: driver.Request{Name: c.out(r.name), Owner: r.request}, Token: r.token(), Handle: r.session}
		if r.has.GetToken() != 0 && !r.has.Claim {
			grants[i].MinHold = 1 // a minimum hold goes on. Of a claim nobody knows whether its work has begun: it has none
		}
	}
	c.mu.Unlock()
	c.Release(c.life, grants)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range over {
		r.asks--
	}
}
