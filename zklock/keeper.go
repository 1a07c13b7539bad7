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
	"github.com/holdfastlock/holdfast/internal/ctxerr"
	"github.com/holdfastlock/holdfast/internal/zksession"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// keeper keeps many holds by one session of ZooKeeper: those of one client whose TTLs and lock-delays need the
// same number of seconds. One write of the session's own node renews them all. Pings, which the connection sends
// by itself, keep the session alive as long as the process lives, but no hold is trusted for them: the client
// deletes the nodes of holds that nobody renews.
type keeper struct {
	c       *client
	timeout time.Duration // the session's
	opened  chan struct{} // closed when the next three are set, for good
	err     error         // why the session could not be opened
	session *zk.Session
	node    string // the session's own node

	writing chan struct{} // holds a value while somebody writes the own node

	// Guarded by the client's mutex.
	trust  zksession.Trust
	failed error // why no server was found yet that opens the session
}

// errOver says that a session has ended.
var errOver = errors.New("the ZooKeeper session has ended")

// admit returns how long the session is to last that a request's hold is on, or why nothing is asked for (P10).
func (c *client) admit(ctx context.Context, r *driver.Request) (time.Duration, error) {
	var longest time.Duration
	c.locked(func() { longest = c.longest })
	switch {
	case r.MinHold > 0:
		return 0, fmt.Errorf("a minimum hold: %w: a node of Curator's layout ends with its session, whatever the time", driver.ErrUnsupported)
	case r.TTL < c.caps.MinTTL:
		return 0, fmt.Errorf("a TTL of %v: %w: the server's shortest session is %v", r.TTL, driver.ErrUnsupported, c.caps.MinTTL)
	case r.LockDelay > 0 && r.TTL+r.LockDelay > longest:
		return 0, fmt.Errorf("a TTL of %v and a lock-delay of %v: %w: the server's longest session is %v",
			r.TTL, r.LockDelay, driver.ErrUnsupported, longest)
	}
	whole := (r.TTL + r.LockDelay + time.Second - 1) / time.Second * time.Second
	return max(c.caps.MinTTL, min(whole, longest)), cmp.Or(c.checkPermits(r), c.layout.checkName(r.Name), c.alive(ctx))
}

// keeperFor returns the keeper of this timeout. It opens a session if there is none.
func (c *client) keeperFor(ctx context.Context, timeout time.Duration) (*keeper, error) {
	for {
		c.mu.Lock()
		if c.isClosed {
			c.mu.Unlock()
			return nil, driver.ErrClosed
		}
		k := c.keepers[timeout]
		if k == nil || k.trust.Over {
			k = &keeper{c: c, timeout: timeout, opened: make(chan struct{}), writing: make(chan struct{}, 1)}
			k.failed = errors.New("no ZooKeeper server has answered yet")
			c.keepers[timeout] = k
			c.background.Go(k.open)
		}
		c.mu.Unlock()
		select {
		case <-k.opened:
		case <-ctx.Done():
			c.mu.Lock()
			defer c.mu.Unlock()
			return nil, &ctxerr.Unanswered{Ended: ctx.Err(), Why: k.failed}
		}
		switch {
		case k.err != nil:
			return nil, k.err
		case k.session.Err() == nil:
			return k, nil
		}
		k.end(k.session.Err())
	}
}

// anyKeeper returns a keeper that there is, or a new one.
func (c *client) anyKeeper(ctx context.Context) (*keeper, error) {
	c.mu.Lock()
	timeout := max(c.caps.MinTTL, min(10*time.Second, c.longest))
	for timeout = range c.keepers {
		break
	}
	c.mu.Unlock()
	return c.keeperFor(ctx, timeout)
}

// open opens the session, and makes its own node.
func (k *keeper) open() {
	c := k.c
	ctx, cancel := context.WithTimeout(c.life, requestWithin)
	defer cancel()
	k.err = k.connect(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.err != nil {
		k.overLocked()
	}
	close(k.opened)
}

func (k *keeper) connect(ctx context.Context) error {
	c, config := k.c, k.c.wire
	config.Timeout, config.Lost = k.timeout, k.end
	config.Failed = func(why error) { c.locked(func() { k.failed = why }) }
	opened, err := zk.Open(ctx, config)
	if err != nil {
		return err
	}
	if granted := opened.Timeout(); granted < k.timeout {
		opened.Abandon()
		c.locked(func() { c.longest = granted }) // the next request asks for no more
		return fmt.Errorf("ZooKeeper granted a session of %v, asked were %v: its bounds have changed", granted, k.timeout)
	}
	k.session, k.node = opened, c.layout.session(opened.ID())
	c.locked(func() { k.trust.AnyServer = opened.AnyServer() })
	if err = k.makeNode(ctx); err != nil {
		closeSession(opened)
	}
	return err
}

// makeNode makes the session's own node: when the session is opened, and when somebody has deleted the node,
// because without it nothing could renew the session's holds.
func (k *keeper) makeNode(ctx context.Context) error {
	replies, err := k.createIn(ctx, []string{k.c.layout.sessions()}, zk.Create(k.node, k.nodeData(), k.c.acl, zk.Ephemeral))
	if err == nil && !errors.Is(replies[0].Err, zk.NodeExists) { // it was asked for twice
		err = replies[0].Err
	}
	if err != nil {
		return fmt.Errorf("making the node of the session: %w", err)
	}
	return nil
}

// nodeData is what the session's own node says: its timeout in milliseconds, for Inspect.
func (k *keeper) nodeData() []byte {
	return strconv.AppendInt(nil, k.timeout.Milliseconds(), 10)
}

// do sends the operations in one write and waits for the answers, of which it takes in what they say of the
// session: only a write that a majority has committed says that the session was alive when the write was sent.
func (k *keeper) do(ctx context.Context, ops ...zk.Op) ([]zk.Reply, error) {
	replies, err := k.session.Do(ctx, ops...)
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	for i := range replies {
		if r := &replies[i]; r.Committed || r.Err == nil {
			k.trust.Answered(r.Committed, r.Sent)
		}
	}
	return replies, err
}

// one does one operation, whose error is in the reply too.
func (k *keeper) one(ctx context.Context, op zk.Op) (zk.Reply, error) {
	replies, _ := k.do(ctx, op)
	return replies[0], replies[0].Err
}

// createIn makes a node in one of dirs and does the other operations, in one round trip. The first reply is that to
// create. For a name that this client has not used yet createIn makes dirs before. If a directory is missing all the
// same, it makes those above too, and does the rest again: the server removes empty directories at any time.
func (k *keeper) createIn(ctx context.Context, dirs []string, create zk.Op, others ...zk.Op) ([]zk.Reply, error) {
	var parents []zk.Op
	if k.c.isNew(dirs[0]) {
		for _, dir := range dirs {
			parents = append(parents, zk.CreateContainer(dir, nil, k.c.acl))
		}
	}
	for {
		replies, err := k.do(ctx, slices.Concat(parents, []zk.Op{create}, others)...)
		made, replies := replies[:len(parents)], replies[len(parents):]
		if err != nil || !errors.Is(replies[0].Err, zk.NoNode) {
			return replies, err
		}
		if err := unmade(made); err != nil {
			return nil, err
		}
		parents = k.containers(dirs...)
	}
}

// isNew reports whether this client has not used a directory before, and remembers some thousands of them.
func (c *client) isNew(dir string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dirs[dir] {
		return false
	}
	if len(c.dirs) >= 4096 {
		clear(c.dirs)
	}
	c.dirs[dir] = true
	return true
}

// containers makes directories and all above them.
func (k *keeper) containers(dirs ...string) (ops []zk.Op) {
	for _, dir := range dirs {
		for i := 1; i <= len(dir); i++ {
			if i == len(dir) || dir[i] == '/' {
				ops = append(ops, zk.CreateContainer(dir[:i], nil, k.c.acl))
			}
		}
	}
	return ops
}

// unmade returns why containers could not be made. This client may make nothing in some levels above, which are there.
// So what counts is the lowest level that was answered otherwise than by the want of the one above it.
func unmade(made []zk.Reply) error {
	for i := len(made) - 1; i >= 0; i-- {
		switch err := made[i].Err; {
		case errors.Is(err, zk.NoNode):
		case err == nil, errors.Is(err, zk.NodeExists):
			return nil
		default:
			return fmt.Errorf("making directories: %w", err)
		}
	}
	return nil
}

// refresh sees to it that the session was alive at after or later, by a write of its own node if need
// be, and does the operations behind that, in one round trip. If the session is fresh enough refresh reads that
// node: so all events have arrived of what was done before. The server's answer to the write that the node does
// not exist is as good: a majority has committed it, in the session. The node is made again then.
func (k *keeper) refresh(ctx context.Context, after driver.Instant, ops ...zk.Op) ([]zk.Reply, error) {
	if err := k.awaitTurn(ctx); err != nil {
		return nil, err
	}
	if k.since() >= after { // somebody else may have written
		<-k.writing
		replies, err := k.do(ctx, append(slices.Clip(ops), zk.Exists(k.node, nil))...)
		if err != nil || !errors.Is(replies[len(ops)].Err, zk.NoNode) {
			return replies[:len(ops)], cmp.Or(err, replies[len(ops)].Err)
		}
		// The node has gone with the session, whose end has broken no hold, or somebody has deleted it. A write
		// tells which.
		if err := k.awaitTurn(ctx); err != nil {
			return nil, err
		}
	}
	defer func() { <-k.writing }()
	replies, err := k.do(ctx, append([]zk.Op{k.write()}, ops...)...)
	switch {
	case err != nil:
	case errors.Is(replies[0].Err, zk.NoNode):
		err = k.makeNode(ctx)
	case replies[0].Err != nil:
		err = fmt.Errorf("writing the session's own node: %w", replies[0].Err)
	}
	return replies[1:], err
}

// awaitTurn puts a value in writing.
func (k *keeper) awaitTurn(ctx context.Context) error {
	select {
	case k.writing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return k.unanswered(ctx.Err())
	}
}

// unanswered adds to a context's error why the session has no connection, if it has none.
func (k *keeper) unanswered(ended error) error {
	if why := k.session.Suspended(); why != nil {
		return &ctxerr.Unanswered{Ended: ended, Why: why}
	}
	return ended
}

// write writes the session's own node.
func (k *keeper) write() zk.Op { return zk.SetData(k.node, k.nodeData(), zk.AnyVersion) }

// since returns since when the session's timeout runs, or 0 if the session has ended.
func (k *keeper) since() driver.Instant {
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	if k.trust.Over {
		return 0
	}
	return k.trust.Since
}

// lost says what is known of a hold whose session is over. Of a session that was not heard of for its timeout no
// server has said that: its nodes may last as long again, and close the name to others (P4).
func (k *keeper) lost() error {
	if errors.Is(k.session.Err(), zk.ErrUnheard) {
		return errOver
	}
	return driver.ErrNotHeld
}

// end notes that the session is over: its holds are lost, and its places worth nothing.
func (k *keeper) end(why error) {
	c := k.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.trust.Over {
		return
	}
	k.overLocked()
	var lost []string
	for _, o := range c.owners {
		if o.keeper != k {
			continue
		}
		if o.state == held {
			lost = append(lost, o.id)
		}
		if o.place != nil {
			o.place.wake()
		}
	}
	if lost != nil {
		c.tellLocked(driver.Loss{Owners: lost, Err: fmt.Errorf("%w: %w: %w", driver.ErrNotHeld, errOver, why)})
	}
}

// overLocked ends the trust in the session. The next request for one opens another.
func (k *keeper) overLocked() {
	k.trust.End()
	if k.c.keepers[k.timeout] == k {
		delete(k.c.keepers, k.timeout)
	}
}
