package etcdlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
	"github.com/holdfastlock/holdfast/internal/pause"
)

// Enqueue implements driver.Queuer. A place is a key on the lease of places, which is short, so that a client that
// has died delays nobody for long (P7); a hold that comes out of it is a claim until it is renewed.
func (c *client) Enqueue(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := c.alive(ctx); err != nil {
		return driver.Grant{}, err
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	r := c.reserve(&req)
	defer c.unreserve(r)
	switch state, _ := c.stateOf(r); state {
	case leaving:
		return driver.Grant{}, driver.ErrNotHeld // it has just ended: the caller asks under another owner
	case held:
		return c.collect(ctx, c.granted(r, &req))
	case queued:
		g, err := c.confirm(ctx, r, &req)
		if !errors.Is(err, errGone) {
			return g, err
		}
		r = c.reserve(&req)
		defer c.unreserve(r)
	}
	return c.line(ctx, r, &req)
}

// line takes a place at the end of the queue, unless the owner has a key, or a tombstone. What was before the place is
// read in the same transaction.
func (c *client) line(ctx context.Context, r *record, req *driver.Request) (driver.Grant, error) {
	key, dir := c.key(r), c.layout.Dir(req.Name)
	absent := func(key string) *etcdserverpb.Compare {
		return table.CompareCreated([]byte(key), nil, etcdserverpb.Compare_EQUAL, 0)
	}
	for {
		sent := c.clock.Now()
		s, err := c.session(ctx, c.minSeconds, sent.Add(-pulse(c.minSeconds)))
		if err != nil {
			return driver.Grant{}, err
		}
		stop := s.beating(ctx)
		resp, err := c.main.txn(ctx, &etcdserverpb.TxnRequest{
			Compare: []*etcdserverpb.Compare{absent(c.layout.Tombstone(req.Owner)), absent(key)},
			Success: append(c.layout.GetInUse(req), table.PutOp([]byte(key), c.text(r, req), s.id)),
			Failure: []*etcdserverpb.RequestOp{table.RangeOp([]byte(key), nil, 0)},
		})
		stop()
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			c.end(s)
			continue // refused for certain, so it may be asked again
		case err != nil:
			return c.unanswered(r, req, s, sent, err)
		case !resp.Succeeded:
			own := c.layout.ParseEntries(dir, resp.Responses[0].GetResponseRange().Kvs)
			if e := table.Find(own, req.Owner, key); e != nil {
				return c.adopt(ctx, r, req, e)
			}
			if len(own) > 0 {
				return driver.Grant{}, errors.New("etcd still has the key of a hold that has ended")
			}
			return driver.Grant{}, driver.ErrNotHeld // it was withdrawn before it arrived
		}
		in, created := c.layout.ReadInUse(dir, resp.Responses), resp.Header.Revision
		if err := c.layout.Mismatch(req, in.Entries); err != nil {
			return c.takeBack(ctx, r, req, s, sent, created, err)
		}
		return c.placed(ctx, r, req, s, created, in.Before(req, created), s.sentBefore(sent), in.Entries)
	}
}

// errGone says that a place or a hold is not there any more.
var errGone = errors.New("the key is gone")

// confirm gives a place's sign of life, and reads whether it has become a hold.
func (c *client) confirm(ctx context.Context, r *record, req *driver.Request) (driver.Grant, error) {
	sent, s := c.clock.Now(), r.session.Load()
	since, err := s.refresh(ctx, sent.Add(-min(s.pulse(), c.caps.Poll))) // a claim counts from there
	if errors.Is(err, errOver) {
		c.forget(r, c.forgetUnsureLocked)
		return driver.Grant{}, errGone
	} else if err != nil {
		return driver.Grant{}, err
	}
	var last table.View
	c.mu.Lock()
	if r.place != nil {
		last = r.place.view
	}
	c.mu.Unlock()
	v, err := c.look(ctx, r, req, last, 0, true)
	if errors.Is(err, driver.ErrHeld) {
		return driver.Grant{}, errGone
	}
	if err != nil {
		return driver.Grant{}, err
	}
	return c.placed(ctx, r, req, s, r.created, v, min(sent, since), v.Entries)
}

// placed notes a place that was confirmed by a request sent then, and returns the grant if nothing is before it.
func (c *client) placed(
	ctx context.Context, r *record, req *driver.Request, s *session, created int64, v table.View, sent driver.Instant, others []table.Entry,
) (driver.Grant, error) {
	c.mu.Lock()
	r.state = queued
	r.putLocked(s, created)
	if r.place == nil {
		r.place = &place{}
	} else if v.More && r.place.view.Ahead > 0 {
		v.Ahead = min(v.Ahead, r.place.view.Ahead) // it can only be fewer
	}
	r.place.view = v
	c.expireAtLocked(r, sent.Add(c.caps.PlaceLife(v.Ahead)))
	c.mu.Unlock()
	if v.Free(req) {
		return c.claimed(ctx, r, req, v.Behind)
	}
	if v.More && len(others) < v.Ahead {
		others = nil // the first of them is not known to be the holder
	}
	held := c.layout.HeldError(req, others)
	held.Ahead = v.Ahead
	return driver.Grant{}, held
}

// claimLasts is how long a claim lasts that comes out of a place.
func (c *client) claimLasts(r *record, req *driver.Request) time.Duration {
	return min(2*c.caps.Poll, time.Duration(r.session.Load().seconds)*time.Second, req.TTL)
}

// claimed turns a place with nothing before it into a hold. Its time is that of the lease of places: nothing at the
// store begins when a place comes to be a hold, so it counts from the sending of whatever kept that lease alive last
// (P1). Behind says that others were in the queue behind the place when the store was last asked what is before it;
// that may be as long ago as the last hold before this one lasted, and nothing more is asked to know it better.
func (c *client) claimed(ctx context.Context, r *record, req *driver.Request, behind bool) (driver.Grant, error) {
	c.mu.Lock()
	if r.state != queued || r.session.Load().over {
		c.mu.Unlock()
		return driver.Grant{}, driver.ErrHeld
	}
	g := c.beginLocked(r, req, c.claimLasts(r, req), 0)
	r.claim, g.Claim = true, true
	c.mu.Unlock()
	var err error
	if now := c.clock.Now(); req.LockDelay > 0 || outlasts(req, now, now) {
		// The lease of places knows no lock-delay, and no minimum hold.
		g, err = c.collect(ctx, c.granted(r, req))
	}
	g.Contended = behind
	return g, err
}

// look returns what is before a place, as it was at that revision or later, or as it is now if that is 0; and ErrHeld
// if the place is gone. Check says that all that was in the way may still be there, which costs less to ask for.
func (c *client) look(ctx context.Context, r *record, req *driver.Request, last table.View, since int64, check bool) (table.View, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	defer r.session.Load().beating(ctx)()
	if check && len(last.Entries) > 0 && req.Mode == driver.Exclusive {
		if v, ok, err := c.still(ctx, r, last, since); ok || err != nil {
			return v, err
		}
	}
	return c.readView(ctx, r, req, since)
}

// still returns the view of an exclusive request's place if all that it has in the way is still there. To etcd that
// is little work however many wait, while a read goes through all keys of the name. Entries before the place only go,
// so nothing has come in between. The member asked answers by itself.
func (c *client) still(ctx context.Context, r *record, v table.View, since int64) (table.View, bool, error) {
	txn := &etcdserverpb.TxnRequest{}
	for _, e := range append([]table.Entry{{Key: c.key(r), Created: r.created}}, v.Entries...) {
		txn.Compare = append(txn.Compare, table.CompareCreated([]byte(e.Key), nil, etcdserverpb.Compare_EQUAL, e.Created))
	}
	// Others may have come since: who is next tells its client whether (driver.Grant.Contended).
	counts := !v.More && !c.layout.Stock
	if counts {
		count := table.Read(c.layout.Dir(r.name))
		count.CountOnly, count.Serializable = true, true
		txn.Success = []*etcdserverpb.RequestOp{table.Op(count)}
	}
	resp, err := c.main.txn(ctx, txn)
	if err != nil || !resp.Succeeded || resp.Header.Revision < since {
		return v, false, err
	}
	if counts {
		v.Behind = resp.Responses[0].GetResponseRange().GetCount() > int64(len(v.Entries)+1)
	}
	v.Rev = max(v.Rev, resp.Header.Revision)
	return v, true, nil
}

// readView reads what is before a place. The member asked answers by itself if it has come as
// far as since: what a majority has agreed on it must not ask again.
func (c *client) readView(ctx context.Context, r *record, req *driver.Request, since int64) (table.View, error) {
	ask := c.layout.GetBefore(req, r.created)
	for ask.Serializable = since > 0; ; ask.Serializable = false {
		read, err := c.main.get(ctx, ask)
		if err != nil {
			return table.View{}, err
		}
		v, own := c.layout.Before(req, c.key(r), r.created, read)
		if ask.Serializable && v.Rev < max(since, r.created) {
			continue
		}
		if !own {
			c.forget(r, c.forgetLocked)
			return v, driver.ErrHeld
		}
		return v, nil
	}
}

// waitCall is one call of Wait.
type waitCall struct {
	c     *client
	r     *record
	req   *driver.Request
	key   string
	view  table.View                  // what is known of the entries before ours
	known int64                       // the last revision that the followers know of
	fs    [table.Nearby + 1]*follower // of what is in the way, and of our own key
	news  chan struct{}               // one value: something has happened
}

// Wait implements driver.Queuer. Every watch begins at the present revision, so that the server tells of an event at
// once; what happened before that, since the view was made, is found by looking again. Whether a key is in the way is
// judged by its create revision, never by its existence alone.
func (c *client) Wait(ctx context.Context, req driver.Request) (driver.Grant, error) {
	c.mu.Lock()
	r := c.recordLocked(req.Name, req.Owner)
	if c.isClosed || r == nil || r.state != queued {
		defer c.mu.Unlock()
		if c.isClosed {
			return driver.Grant{}, driver.ErrClosed
		}
		return driver.Grant{}, driver.ErrHeld // no place: Enqueue tells what became of it
	}
	v := &waitCall{c: c, r: r, req: &req, key: c.key(r), view: r.place.view, news: make(chan struct{}, 1)}
	v.view.Entries = slices.Clone(v.view.Entries)
	r.place.waits = v
	c.mu.Unlock()
	defer v.end()
	beat := time.NewTimer(v.untilBeat())
	defer beat.Stop()
	for {
		if c.life.Err() != nil { // the end of the watches may be noticed first
			return driver.Grant{}, driver.ErrClosed
		}
		c.mu.Lock()
		next := v.stepLocked()
		c.mu.Unlock()
		switch next {
		case takeIt:
			return c.claimed(ctx, r, &req, v.view.Behind)
		case enqueueAgain:
			return driver.Grant{}, driver.ErrHeld
		case rest:
			// While the stream has trouble, a waiter must not ask in a tight loop.
			pause.Sleep(ctx, c.caps.Poll/8)
			return driver.Grant{}, driver.ErrHeld
		case checkAgain, readAgain:
			seen, err := c.look(ctx, r, &req, v.view, v.known, next == checkAgain)
			if err != nil {
				return driver.Grant{}, err
			}
			v.view = seen
			continue
		}
		select {
		case <-v.news:
		case <-beat.C:
			s := r.session.Load()
			s.refresh(ctx, c.clock.Now().Add(-s.pulse()))
			beat.Reset(v.untilBeat())
		case <-ctx.Done():
			return driver.Grant{}, ctx.Err()
		case <-c.life.Done():
			return driver.Grant{}, driver.ErrClosed
		}
	}
}

// next is what a call of Wait does next.
type next uint8

const (
	waitOn next = iota
	takeIt
	checkAgain // whether what was in the way still is
	readAgain
	enqueueAgain
	rest
)

// stepLocked takes in what the followers have recorded, and returns what to do.
func (v *waitCall) stepLocked() next {
	if v.r.state != queued {
		return enqueueAgain // Enqueue takes another place, or tells what became of this
	}
	v.chooseLocked()
	silent, missed := false, false
	for _, f := range v.fs {
		switch {
		case f == nil:
			continue
		case f.ended:
			return rest
		case !f.begun:
			silent = true
			continue
		}
		// What happened since the view was made is recorded only if the follower had begun.
		if v.known = max(v.known, f.from, f.put); v.view.Rev < max(f.from, f.put) {
			missed = true
			continue
		}
		for _, e := range f.log {
			if e.key == v.key && e.rev > v.r.created {
				v.c.forgetLocked(v.r)
				return enqueueAgain
			}
			if e.rev > v.view.Rev {
				v.view.Entries = table.Without(v.view.Entries, e.key)
				v.known = max(v.known, e.rev)
			}
		}
	}
	switch {
	case v.view.Free(v.req):
		return takeIt
	case silent:
		return waitOn // one read is enough for all followers that begin
	case v.view.More && len(v.view.Entries) < table.Nearby:
		return readAgain
	case missed:
		return checkAgain
	}
	return waitOn
}

// chooseLocked follows what is in the way, and nothing else. For an exclusive request that is the few keys right
// before its own. A holds, and B and C wait, in this order. When A's key is deleted, C reads what is left while B has
// the name: so C's own grant comes with an event alone, and a release does not wake a thousand waiters. A waiter with
// no others before those follows its own key too.
func (v *waitCall) chooseLocked() {
	var want [table.Nearby + 1]span
	dir := v.c.layout.Dir(v.r.name)
	if v.req.Mode != driver.Exclusive {
		want[0] = dirSpan(dir, v.req.Mode == driver.Shared) // a downgrade is a put
	} else {
		for i, e := range v.view.Entries {
			want[i].key = e.Key
		}
		if !v.view.More {
			want[table.Nearby].key = v.key
		}
	}
	for i, f := range v.fs {
		if f != nil && !slices.Contains(want[:], f.span) {
			f.leaveLocked(v.news)
			v.fs[i] = nil
		}
	}
	for _, s := range want {
		if s.key != "" && !slices.ContainsFunc(v.fs[:], func(f *follower) bool { return f != nil && f.span == s }) {
			v.fs[slices.Index(v.fs[:], nil)] = v.c.followLocked(dir, s, v.news)
		}
	}
}

// untilBeat returns how long to wait before the next sign of life. All waiters of a client
// are on one lease, and one sign is for all of them.
func (v *waitCall) untilBeat() time.Duration {
	s, now := v.r.session.Load(), v.c.clock.Now()
	return max(s.sentBefore(now).Add(s.pulse()).Sub(now), s.pulse()/16)
}

func (v *waitCall) end() {
	v.c.mu.Lock()
	defer v.c.mu.Unlock()
	for _, f := range v.fs {
		if f != nil {
			f.leaveLocked(v.news)
		}
	}
	if p := v.r.place; p != nil && p.waits == v {
		p.waits, p.view = nil, v.view // what has gone in the meantime does not come back
	}
}
