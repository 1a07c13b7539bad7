package etcdlock

import (
	"context"
	"errors"
	"sync"

	"github.com/holdfastlock/holdfast/driver"
)

// Watch implements driver.Watcher: every change of a key of the name is a hint,
// and so is a watch that had to begin anew, because something may have happened
// before.
func (c *client) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	if err := c.alive(ctx); err != nil {
		return nil, err
	}
	dir := c.layout.Dir(name)
	n := &notice{c: c, dir: dir, span: dirSpan(dir, true), hints: make(chan struct{}, 1)}
	first, cancel := c.bounded(ctx)
	defer cancel()
	n.begin()
	select {
	case <-n.started:
	case <-n.ended:
		return nil, errors.New("etcd has ended the watch")
	case <-first.Done():
		c.hub.end(n.watch)
		return nil, first.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		c.hub.end(n.watch)
		return nil, driver.ErrClosed
	}
	c.background.Go(func() { n.run(ctx) })
	return n.hints, nil
}

// notice is one call of Watch.
type notice struct {
	c       *client
	dir     string
	span    span
	watch   *watch
	started chan struct{} // closed when the watch has begun
	ended   chan struct{} // closed when it is over

	mu    sync.Mutex
	done  bool // hints is closed
	hints chan struct{}
}

// begin begins a watch.
func (n *notice) begin() {
	started, ended := make(chan struct{}), make(chan struct{})
	n.started, n.ended = started, ended
	n.watch = n.c.hub.watch(n.span.key, n.span.end, n.span.puts, func(e event) {
		switch e.what {
		case begun:
			close(started)
		case over:
			close(ended)
		default:
			if n.c.layout.IsEntry(n.dir, e.key) {
				n.hint()
			}
		}
	})
}

func (n *notice) hint() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.done {
		return
	}
	select {
	case n.hints <- struct{}{}:
	default: // there is one that nobody has taken yet
	}
}

// run begins the watch anew when it is over, until the context or the client ends.
func (n *notice) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(n.c.life, cancel)()
	for started := (<-chan struct{})(nil); ctx.Err() == nil; {
		select {
		case <-started:
			started = nil
			n.hint()
		case <-n.ended:
			if sleep(ctx, n.c.poll/8) {
				n.begin()
				started = n.started
			}
		case <-ctx.Done():
		}
	}
	n.c.hub.end(n.watch)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.done = true
	close(n.hints)
}
