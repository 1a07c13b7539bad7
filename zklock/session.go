package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/zksession"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// session is one session of ZooKeeper, on which the nodes of many holds are: those of one client
// whose TTLs and lock-delays need the same number of seconds. One write of the session's own node
// keeps them all. Pings, which the connection sends by itself, keep the session alive as long as the
// process lives, but no hold is trusted for them: holds that nobody renews are deleted by their client.
type session struct {
	c       *client
	timeout time.Duration
	opened  chan struct{} // closed when the next three are set, for good
	err     error         // why it could not be opened
	zk      *zk.Session
	node    string // its own node

	renewing chan struct{} // holds a value while somebody writes the own node

	// Guarded by the client's mutex.
	trust       zksession.Session
	failed      error                 // why no server was found yet that opens it
	users       int                   // records, watches and requests that need it
	unused      driver.Instant        // since when it has none
	directories map[string]*directory // by path
}

// errOver says that a session has ended.
var errOver = errors.New("the ZooKeeper session has ended")

// term is how long a hold is to last, and on what session.
type term struct {
	session time.Duration // the session's timeout
	lasts   time.Duration // Grant.Valid, at most
}

// termOf returns how long a hold can last that is asked for, or why it cannot be.
func (c *client) termOf(r *driver.Request) (term, error) {
	longest := c.longestSession()
	switch {
	case r.MinHold > 0:
		return term{}, fmt.Errorf("a minimum hold: %w: a node of Curator's layout ends with its session, whatever the time", driver.ErrUnsupported)
	case r.TTL < c.caps.MinTTL:
		return term{}, fmt.Errorf("a TTL of %v: %w: the server's shortest session is %v", r.TTL, driver.ErrUnsupported, c.caps.MinTTL)
	case r.LockDelay > 0 && r.TTL+r.LockDelay > longest:
		return term{}, fmt.Errorf("a TTL of %v and a lock-delay of %v: %w: the server's longest session is %v",
			r.TTL, r.LockDelay, driver.ErrUnsupported, longest)
	}
	if err := c.checkPermits(r); err != nil {
		return term{}, err
	}
	whole := (r.TTL + r.LockDelay + time.Second - 1) / time.Second * time.Second
	t := term{session: max(c.caps.MinTTL, min(whole, longest))}
	t.lasts = min(r.TTL, t.session-r.LockDelay)
	return t, nil
}

func (c *client) longestSession() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.longest
}

// acquireSession returns a session of this timeout for one user more, opened if there is none.
func (c *client) acquireSession(ctx context.Context, timeout time.Duration) (*session, error) {
	for {
		c.mu.Lock()
		if c.isClosed {
			c.mu.Unlock()
			return nil, driver.ErrClosed
		}
		s := c.sessions[timeout]
		if s == nil || s.trust.Over {
			s = &session{
				c: c, timeout: timeout, failed: errNoAnswer, opened: make(chan struct{}), renewing: make(chan struct{}, 1),
				directories: map[string]*directory{},
			}
			c.sessions[timeout] = s
			c.background.Go(s.open)
		}
		s.users++
		c.mu.Unlock()
		select {
		case <-s.opened:
		case <-ctx.Done():
			defer s.leave()
			return nil, s.unopened(ctx.Err())
		}
		switch {
		case s.err != nil:
			s.leave()
			return nil, s.err
		case s.zk.Err() == nil:
			return s, nil
		}
		c.end(s, s.zk.Err())
		s.leave()
	}
}

// unopened says why a session was not opened before a context ended.
func (s *session) unopened(ended error) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return &driver.UnansweredError{Ended: ended, Why: s.failed}
}

// errNoAnswer says that all servers that were asked to open a session are silent.
var errNoAnswer = errors.New("no ZooKeeper server has answered yet")

// anySession returns a session for one user more: one that there is, or another.
func (c *client) anySession(ctx context.Context) (*session, error) {
	c.mu.Lock()
	timeout := max(c.caps.MinTTL, min(usualTimeout, c.longest))
	for other, s := range c.sessions {
		if s.isOpenLocked() {
			timeout = other
			break
		}
	}
	c.mu.Unlock()
	return c.acquireSession(ctx, timeout)
}

// usualTimeout is that of a session for which nothing is held.
const usualTimeout = 10 * time.Second

func (s *session) isOpenLocked() bool {
	select {
	case <-s.opened:
		return s.err == nil && !s.trust.Over
	default:
		return false
	}
}

// leave ends one use of the session.
func (s *session) leave() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.leaveLocked()
}

func (s *session) leaveLocked() {
	if s.users--; s.users == 0 {
		s.unused = s.c.clock.Now()
		s.c.timer.Set(s.unused.Add(idleFor))
	}
}

// idleFor is how long a session stays open that nobody uses, and how long it remembers a directory.
const idleFor = 30 * time.Second

// open opens the session, and makes its own node.
func (s *session) open() {
	c := s.c
	ctx, cancel := context.WithTimeout(c.life, requestWithin)
	defer cancel()
	err := s.connect(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.err = err; err != nil {
		s.trust.Over = true
		if c.sessions[s.timeout] == s {
			delete(c.sessions, s.timeout)
		}
	}
	close(s.opened)
}

func (s *session) connect(ctx context.Context) error {
	c := s.c
	config := c.wire
	config.Timeout = s.timeout
	config.Lost = func(err error) { c.end(s, err) }
	config.Failed = func(why error) {
		c.mu.Lock()
		s.failed = why
		c.mu.Unlock()
	}
	opened, err := c.open(ctx, config)
	if err != nil {
		return err
	}
	if granted := opened.Timeout(); granted < s.timeout {
		opened.Abandon()
		c.mu.Lock()
		c.longest = granted // the next request asks for no more
		c.mu.Unlock()
		return fmt.Errorf("ZooKeeper granted a session of %v, asked were %v: its bounds have changed", granted, s.timeout)
	}
	s.zk, s.node = opened, c.layout.session(opened.ID())
	c.mu.Lock()
	s.trust.Timeout, s.trust.AnyServer = opened.Timeout(), opened.AnyServer()
	c.mu.Unlock()
	if err := s.makeNode(ctx); err != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
		defer cancel()
		opened.Close(ctx)
		return err
	}
	return nil
}

// makeNode makes the session's own node: when the session is opened, and when somebody has deleted it. Suppose
// that it were not made again: then nothing could renew the session's holds, though the session lives.
func (s *session) makeNode(ctx context.Context) error {
	replies, err := s.createIn(ctx, []string{s.c.layout.sessions()}, zk.Create(s.node, s.nodeData(), s.c.acl, zk.Ephemeral))
	if err == nil && !errors.Is(replies[0].Err, zk.NodeExists) { // it was asked for twice
		err = replies[0].Err
	}
	if err != nil {
		return fmt.Errorf("making the node of the session: %w", err)
	}
	return nil
}

// nodeData is what the session's own node says: its timeout in milliseconds, for Inspect.
func (s *session) nodeData() []byte {
	return strconv.AppendInt(nil, s.timeout.Milliseconds(), 10)
}

// do sends the operations in one write and waits for the answers, of which it takes in what they say
// of the session.
func (s *session) do(ctx context.Context, ops ...zk.Op) ([]zk.Reply, error) {
	replies, err := s.zk.Do(ctx, ops...)
	s.answered(replies)
	return replies, err
}

// answered takes in what answers say of the session: only a write that a majority has committed says
// that it was alive when the write was sent.
func (s *session) answered(replies []zk.Reply) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for i := range replies {
		switch r := &replies[i]; {
		case r.Committed:
			s.trust.Answered(zksession.Write, true, r.Sent)
		case r.Err == nil:
			s.trust.Answered(zksession.Read, true, r.Sent)
		}
	}
}

// createIn makes a node, whose directory is the last of dirs, and does the other operations, in one round
// trip. It makes directories that are missing: it sends the last of them along for a name that this session
// has not used lately, and all with what is above them if the node cannot be made for want of them.
// Containers that are empty are removed by the server at any time. The first reply is that to create.
func (s *session) createIn(ctx context.Context, dirs []string, create zk.Op, others ...zk.Op) ([]zk.Reply, error) {
	ops := append([]zk.Op{create}, others...)
	isNew := s.isNew(dirs[0])
	for round := 0; ; round++ {
		sent := ops
		if round == 0 && isNew {
			sent = append(s.containers(dirs), ops...)
		}
		replies, err := s.do(ctx, sent...)
		if len(replies) > 0 {
			replies = replies[len(sent)-len(ops):]
		}
		if err != nil || !errors.Is(replies[0].Err, zk.NoNode) || round == makeParents {
			return replies, err
		}
		if err := s.makeParents(ctx, dirs); err != nil {
			return nil, fmt.Errorf("making directories: %w", err)
		}
	}
}

// containers makes directories.
func (s *session) containers(dirs []string) []zk.Op {
	ops := make([]zk.Op, len(dirs))
	for i, dir := range dirs {
		ops[i] = zk.CreateContainer(dir, nil, s.c.acl)
	}
	return ops
}

// makeParents is how often missing parents are made for one request. The server may remove those that are
// empty again before the request comes, as often as it looks for them: each minute, unless it is set up to
// look each few milliseconds.
const makeParents = 20

// makeParents makes containers, and all above them, in one round trip. It does not say whether the server
// has removed one of them meanwhile: the request that needs them does.
func (s *session) makeParents(ctx context.Context, paths []string) error {
	var ops []zk.Op
	made := map[string]bool{}
	for _, path := range paths {
		for i := 1; i <= len(path); i++ {
			if i == len(path) || path[i] == '/' {
				if level := path[:i]; !made[level] {
					made[level] = true
					ops = append(ops, zk.CreateContainer(level, nil, s.c.acl))
				}
			}
		}
	}
	replies, err := s.do(ctx, ops...)
	if err != nil {
		return err
	}
	// This client may make nothing in some levels above, which are there. So what counts is the lowest level
	// that was answered otherwise than by the want of the one above it.
	for i := len(replies) - 1; i >= 0; i-- {
		switch err := replies[i].Err; {
		case errors.Is(err, zk.NoNode):
		case err == nil, errors.Is(err, zk.NodeExists):
			return nil
		default:
			return fmt.Errorf("making %s: %w", paths[len(paths)-1], err)
		}
	}
	return nil
}

// refresh sees to it that the session was alive at after or later, by a write of its own node if need
// be, and does the operations behind that, in one round trip. If the session is fresh enough it reads that
// node: so all events have arrived of what was done before. The server's answer to the write that the node does
// not exist is as good: a majority has committed it, in the session. The node is made again then.
func (s *session) refresh(ctx context.Context, after driver.Instant, ops ...zk.Op) ([]zk.Reply, error) {
	if err := s.awaitTurn(ctx); err != nil {
		return nil, err
	}
	if s.since() >= after { // maybe somebody else has written meanwhile
		<-s.renewing
		replies, err := s.do(ctx, append(slices.Clip(ops), zk.Exists(s.node, nil))...)
		if err != nil || !errors.Is(replies[len(ops)].Err, zk.NoNode) {
			return replies[:len(ops)], cmp.Or(err, replies[len(ops)].Err)
		}
		// It has gone with the session, whose end has broken no hold, or somebody has deleted it. A write tells
		// which.
		if err := s.awaitTurn(ctx); err != nil {
			return nil, err
		}
	}
	defer func() { <-s.renewing }()
	replies, err := s.do(ctx, append([]zk.Op{s.write()}, ops...)...)
	switch {
	case err != nil:
	case errors.Is(replies[0].Err, zk.NoNode):
		err = s.makeNode(ctx)
	case replies[0].Err != nil:
		err = fmt.Errorf("writing the session's own node: %w", replies[0].Err)
	}
	return replies[1:], err
}

// awaitTurn puts a value in renewing.
func (s *session) awaitTurn(ctx context.Context) error {
	select {
	case s.renewing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return s.unanswered(ctx.Err())
	}
}

// unanswered adds to a context's error why the session has no connection, if it has none.
func (s *session) unanswered(ended error) error {
	if why := s.zk.Suspended(); why != nil {
		return &driver.UnansweredError{Ended: ended, Why: why}
	}
	return ended
}

// write writes the session's own node.
func (s *session) write() zk.Op { return zk.SetData(s.node, s.nodeData(), zk.AnyVersion) }

// since returns since when the session's timeout runs, or 0 if it has ended.
func (s *session) since() driver.Instant {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.trust.Over {
		return 0
	}
	return s.trust.Since
}

// lost says what is known of a hold whose session is over. No server has said that of a session which was
// not heard of for its timeout: its nodes may last as long again, and close the name to others (P4).
func (s *session) lost() error {
	if errors.Is(s.zk.Err(), zk.ErrUnheard) {
		return errOver
	}
	return driver.ErrNotHeld
}

// end notes that a server has said that a session is over: its holds are lost, and its places worth
// nothing.
func (c *client) end(s *session, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.trust.Over {
		return
	}
	s.trust.End()
	if c.sessions[s.timeout] == s {
		delete(c.sessions, s.timeout)
	}
	var lost []string
	for _, r := range c.records {
		if r.session != s {
			continue
		}
		if r.state == held {
			lost = append(lost, r.owner)
		}
		r.wakeLocked()
	}
	if lost != nil {
		c.tellLocked(driver.Loss{Owners: lost, Err: fmt.Errorf("%w: %w: %w", driver.ErrNotHeld, errOver, why)})
	}
}
