package zklock

import (
	"context"
	"errors"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// Watch implements driver.Watcher: by watches on the lists of the name's nodes, and on the nodes that
// hold it, whose data are the notes.
func (c *client) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	if err := c.layout.checkName(name); err != nil {
		return nil, err
	}
	if err := c.alive(ctx); err != nil {
		return nil, err
	}
	n := &notice{c: c, name: name, hints: make(chan struct{}, 1)}
	first, cancel := c.bounded(ctx)
	defer cancel()
	if err := n.arm(first); err != nil {
		n.end()
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		return nil, driver.ErrClosed
	}
	c.background.Go(func() { n.run(ctx) })
	return n.hints, nil
}

// notice is one call of Watch.
type notice struct {
	c     *client
	name  string
	s     *session // nil: none
	w     *zk.Watch
	hints chan struct{}
}

// arm sets the watches, in a session that is alive.
func (n *notice) arm(ctx context.Context) error {
	if n.s != nil && n.s.zk.Err() != nil {
		n.end()
	}
	if n.s == nil {
		s, err := n.c.anySession(ctx)
		if err != nil {
			return err
		}
		n.s, n.w = s, zk.NewWatch()
	}
	path, leases := n.c.layout.path(n.name), n.c.leases(n.name)
	replies, err := n.s.do(ctx, zk.Exists(path, n.w), zk.Children(path, n.w), zk.Children(leases, n.w))
	if err != nil {
		return err
	}
	entries := parseChildren(replies[1].Children).entries
	var ops []zk.Op
	for _, e := range entries[:holders(entries)] {
		ops = append(ops, zk.GetData(path+"/"+e.name, n.w))
	}
	for _, child := range replies[2].Children {
		ops = append(ops, zk.GetData(leases+"/"+child, n.w))
	}
	replies, err = n.s.do(ctx, ops...)
	for i := range replies {
		if err == nil && replies[i].Err != nil && !errors.Is(replies[i].Err, zk.NoNode) {
			err = replies[i].Err
		}
	}
	return err
}

// end forgets the watches.
func (n *notice) end() {
	if n.s != nil {
		n.s.zk.Unwatch(n.w)
		n.s.leave()
		n.s = nil
	}
}

// watchPause is the time between two attempts to watch.
const watchPause = 100 * time.Millisecond

// run tells of changes until the context or the client ends.
func (n *notice) run(ctx context.Context) {
	defer close(n.hints)
	defer n.end()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(n.c.life, cancel)()
	for ctx.Err() == nil {
		select {
		case <-n.w.C():
		case <-ctx.Done():
			return
		}
		n.hint()
		for ctx.Err() == nil {
			bounded, cancel := n.c.bounded(ctx)
			err := n.arm(bounded)
			cancel()
			if err == nil {
				break
			}
			sleep(ctx, watchPause)
		}
		n.hint() // something may have changed before the watches were set again
	}
}

func (n *notice) hint() {
	select {
	case n.hints <- struct{}{}:
	default: // there is one that nobody has taken yet
	}
}
