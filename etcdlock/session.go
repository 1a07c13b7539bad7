package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/pause"
)

// session is one lease of etcd, on which the keys of many holds are: those of one client whose TTLs and lock-delays
// need the same number of seconds. One request keeps them all alive. It is never kept alive by itself, only for a
// hold that is taken or renewed: what is not used ends.
type session struct {
	c       *client
	seconds int64
	busy    chan struct{} // holds one value while somebody asks the store

	// Guarded by the client's mutex. The id is set once, before the first refresh returns.
	id    clientv3.LeaseID
	since driver.Instant // the sending of the last request that started the TTL again
	over  bool           // the lease has ended, or nobody can be sure that it has not

	fixed bool // of one hold, until its minimum hold is over: see outlasts
}

func (c *client) newSession(secs int64) *session {
	return &session{c: c, seconds: secs, busy: make(chan struct{}, 1)}
}

// errOver says that a session has ended.
var errOver = errors.New("the session has ended")

// seconds returns how many of them a lease needs: etcd counts in whole ones.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// holdSeconds returns how many a hold's lease needs.
func holdSeconds(req *driver.Request) int64 { return seconds(req.TTL + req.LockDelay) }

// pulse is how old the last sign of life of a lease of places may be: a third of what it
// lasts. That is often enough that one may be late, and that a claim, which counts from it,
// has most of its time left. It is rare, because each of a thousand waiters gives them.
func pulse(secs int64) time.Duration { return time.Duration(secs) * time.Second / 3 }

func (s *session) pulse() time.Duration { return pulse(s.seconds) }

// session returns the session for leases of so many seconds, started or kept
// alive by a request that was sent at after or later.
func (c *client) session(ctx context.Context, secs int64, after driver.Instant) (*session, error) {
	for {
		c.mu.Lock()
		s := c.sessions[secs]
		if s == nil || s.over {
			s = c.newSession(secs)
			c.sessions[secs] = s
		}
		c.mu.Unlock()
		if _, err := s.refresh(ctx, after); !errors.Is(err, errOver) {
			return s, err
		}
	}
}

// refresh sees to it that the lease was started or kept alive by a request that was sent at after or later, and
// returns the sending of the last one (P1: not the arrival of the answer).
func (s *session) refresh(ctx context.Context, after driver.Instant) (driver.Instant, error) {
	if since, err := s.fresh(after); err != nil || since != 0 {
		return since, err
	}
	select {
	case s.busy <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { <-s.busy }()
	if since, err := s.fresh(after); err != nil || since != 0 {
		return since, err // another goroutine has asked in the meantime
	}
	sent, ttl, err := s.c.clock.Now(), int64(0), error(nil)
	if s.id == 0 { // changed only by the goroutine that has busy
		return sent, s.grant(ctx, sent)
	}
	if ttl, err = s.c.keepAlive(ctx, s.id, max(s.pulse(), time.Second)); err != nil {
		return 0, err
	}
	if ttl <= 0 {
		s.c.end(s)
		return 0, errOver
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	// An answer that comes when the lease may have ended proves nothing: etcd
	// may have sent for its end before it started the TTL again.
	if s.over = s.over || s.ended() || ttl < s.seconds; s.over {
		return 0, errOver
	}
	s.since = sent
	return sent, nil
}

// fresh returns since if it is not before after, else 0.
func (s *session) fresh(after driver.Instant) (driver.Instant, error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	switch s.over = s.over || s.ended(); {
	case s.over:
		return 0, errOver
	case s.id != 0 && s.since >= after:
		return s.since, nil
	}
	return 0, nil
}

// ended reports whether the TTL may have ended at the store.
func (s *session) ended() bool {
	return s.id != 0 && s.c.clock.Now() >= s.since.Add(time.Duration(s.seconds)*time.Second)
}

// grant makes the lease.
func (s *session) grant(ctx context.Context, sent driver.Instant) error {
	resp, err := s.c.spareRoute().leases.Grant(ctx, s.seconds)
	if err != nil {
		return ended(ctx, err)
	}
	if resp.TTL < s.seconds {
		return fmt.Errorf("etcd granted a lease of %d s, asked were %d s", resp.TTL, s.seconds)
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.id, s.since = resp.ID, sent
	return nil
}

// sentBefore returns since, or sent where that is earlier.
func (s *session) sentBefore(sent driver.Instant) driver.Instant {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return min(s.since, sent)
}

// beating keeps a lease of places alive until stop is called, while a request that may take
// long is under way. A thousand clients start together, and their requests take longer than
// the lease lasts. Without this each would lose its place and ask anew, and none be served.
func (s *session) beating(ctx context.Context) (stop func()) {
	ctx, stop = context.WithCancel(ctx)
	go func() {
		for pause.Sleep(ctx, s.pulse()) {
			s.refresh(ctx, s.c.clock.Now().Add(-s.pulse()/2))
		}
	}()
	return stop
}

// end notes that the store has ended a session: its holds are lost, and its places worth nothing.
func (c *client) end(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.over {
		return
	}
	s.over = true
	var lost []string
	var gone []*record
	for r := range c.records.all() {
		if r.session.Load() == s && r.state != asking {
			gone = append(gone, r)
		}
	}
	for _, r := range gone {
		if r.state == held {
			lost = append(lost, r.owner)
		}
		c.forgetUnsureLocked(r) // the store may delete the key a little later
	}
	if lost != nil {
		c.tellLocked(driver.Loss{Owners: lost, Err: fmt.Errorf("%w: etcd has ended the lease", driver.ErrNotHeld)})
	}
}

// tombstoneFor is how long a request that was withdrawn has a tombstone: at least half of
// this. The lease for it is not kept alive but replaced when half of it is over.
const tombstoneFor = 2 * time.Minute

// tombstoneLease returns the lease on which tombstones are put.
func (c *client) tombstoneLease(ctx context.Context) (clientv3.LeaseID, error) {
	c.mu.Lock()
	s := c.tombstones
	if now := c.clock.Now(); s == nil || s.over || s.id != 0 && now >= s.since.Add(tombstoneFor/2) {
		s = c.newSession(seconds(tombstoneFor))
		c.tombstones = s
	}
	c.mu.Unlock()
	_, err := s.refresh(ctx, 0)
	return s.id, err
}

// keepAlives is one stream on which a client keeps all its leases alive, one after the other. Each stream that is
// opened costs a server with users a check of the password, and an entry in its log: too much for each sign of life.
type keepAlives struct {
	busy   chan struct{} // holds a value while a request is under way, and guards the rest
	route  *route
	stream etcdserverpb.Lease_LeaseKeepAliveClient // nil: none
	cancel context.CancelFunc
}

// keepAlive asks once, and returns the seconds that the lease lasts from now: 0 if it has ended. The library's own
// function asks again and again, without a pause. A stream that was open already and breaks, or on which no answer
// comes for as long as patience, is replaced by another, as a rule to another member.
func (c *client) keepAlive(ctx context.Context, id clientv3.LeaseID, patience time.Duration) (int64, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	k := &c.kept
	select {
	case k.busy <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { <-k.busy }()
	if k.stream != nil && k.route == c.spareRoute() {
		once, cancel := context.WithTimeout(ctx, patience)
		ttl, err := k.ask(once, id)
		if cancel(); err == nil || ctx.Err() != nil {
			return ttl, ended(ctx, err)
		}
	}
	ttl, err := int64(0), k.open(ctx, c.life, c.spareRoute())
	if err == nil {
		ttl, err = k.ask(ctx, id)
	}
	return ttl, ended(ctx, clientv3.ContextError(ctx, err))
}

// open opens a stream for as long as the client lives, in place of the one before.
func (k *keepAlives) open(ctx, life context.Context, w *route) (err error) {
	if k.stream != nil {
		k.cancel()
	}
	life, k.cancel = context.WithCancel(clientv3.WithRequireLeader(life))
	defer context.AfterFunc(ctx, k.cancel)()
	k.route = w
	if k.stream, err = etcdserverpb.NewLeaseClient(w.etcd.ActiveConnection()).LeaseKeepAlive(life); err != nil {
		k.cancel()
		k.stream = nil
	}
	return err
}

// ask sends a request and waits for its answer. If ctx ends first the stream is given up: an answer that comes later
// must not be taken for that of a later request, whose lease would be trusted for longer than it lasts (P1).
func (k *keepAlives) ask(ctx context.Context, id clientv3.LeaseID) (int64, error) {
	defer context.AfterFunc(ctx, k.cancel)()
	k.stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(id)}) // if it fails Recv says why
	resp, err := k.stream.Recv()
	if err == nil && resp.ID != int64(id) {
		err = errors.New("etcd has answered what was not asked")
	}
	if err != nil {
		k.cancel()
		k.stream = nil
		return 0, err
	}
	return resp.TTL, nil
}
