package zklock

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// operate calls do with a keeper, and with a context that is bounded in time, for an operator who asks for a name.
func (c *client) operate(ctx context.Context, name string, do func(context.Context, *keeper) error) error {
	err := c.layout.checkName(name)
	if err == nil {
		err = c.alive(ctx)
	}
	if err != nil {
		return err
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	k, err := c.anyKeeper(ctx)
	if err != nil {
		return err
	}
	defer k.leave()
	return do(ctx, k)
}

// Break implements driver.Breaker. The token names one hold for ever, by the transaction that made its
// node (P4). Its holder learns of the break by a watch on that node.
func (c *client) Break(ctx context.Context, name string, token driver.Token) error {
	return c.operate(ctx, name, func(ctx context.Context, k *keeper) error {
		nodes, _, err := c.holding(ctx, k, name)
		if err != nil {
			return err
		}
		var paths []string
		for i := range nodes {
			if token > 0 && nodes[i].token == token {
				paths = append(paths, nodes[i].path)
			}
		}
		there, err := k.deleteNodes(ctx, paths)
		if err == nil && !there {
			err = driver.ErrNotHeld
		}
		return err
	})
}

// Inspect implements driver.Inspector. Since when a hold is held is by the clock of the leader. When it
// expires is known of Holdfast's sessions, from the last write of their own nodes.
func (c *client) Inspect(ctx context.Context, name string) (info driver.Info, err error) {
	err = c.operate(ctx, name, func(ctx context.Context, k *keeper) error {
		return c.retrying(ctx, func() error {
			info, err = c.info(ctx, k, name)
			return err
		})
	})
	return info, err
}

// node is what the store says of one entry.
type node struct {
	entry
	path  string
	stat  zk.Stat
	note  string
	token driver.Token
}

// read reads the data of entries in a directory. Those that have gone meanwhile are left out.
func (c *client) read(ctx context.Context, k *keeper, dir string, entries []entry) ([]node, error) {
	ops := make([]zk.Op, len(entries))
	for i, e := range entries {
		ops[i] = zk.GetData(dir+"/"+e.name, nil)
	}
	replies, err := k.do(ctx, ops...)
	if err != nil {
		return nil, err
	}
	var nodes []node
	for i := range replies {
		reply := &replies[i]
		if errors.Is(reply.Err, zk.NoNode) {
			continue
		}
		if reply.Err != nil {
			return nil, reply.Err
		}
		n := node{entry: entries[i], path: dir + "/" + entries[i].name, stat: reply.Stat}
		n.note, n.token = parseData(reply.Data)
		if n.token == 0 || n.stem != stemRead {
			n.token, _ = tokenOf(reply.Stat.Czxid)
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// listing is the nodes of a name, as they were when they were listed.
type listing struct {
	entries []entry // of mutexes and read-write locks
	waiting []entry // below locks
	leases  []entry
	slots   int
	now     int64 // by the server's wall clock, in milliseconds
}

// list lists the nodes of a name. A write of the session's own node tells the server's time.
func (c *client) list(ctx context.Context, k *keeper, name string) (listing, error) {
	l := &c.layout
	replies, err := k.do(ctx, k.write(),
		zk.Children(l.path(name), nil), zk.Children(l.locks(name), nil), zk.Children(l.leases(name), nil), zk.GetData(l.leases(name), nil))
	if err != nil {
		return listing{}, err
	}
	if errors.Is(replies[0].Err, zk.NoNode) { // somebody has deleted it
		if err := k.makeNode(ctx); err != nil {
			return listing{}, err
		}
		return c.list(ctx, k, name)
	}
	for i := range replies {
		if err := replies[i].Err; err != nil && !errors.Is(err, zk.NoNode) {
			return listing{}, err
		}
	}
	found := listing{
		entries: parseChildren(replies[1].Children).entries, waiting: parseChildren(replies[2].Children).entries,
		leases: parseChildren(replies[3].Children).entries, now: replies[0].Stat.Mtime,
	}
	if len(found.leases)+len(found.waiting) > 0 {
		found.slots = parseSlots(replies[4].Data)
	}
	return found, nil
}

// holding returns the nodes that hold a name, and its listing.
func (c *client) holding(ctx context.Context, k *keeper, name string) ([]node, listing, error) {
	l, err := c.list(ctx, k, name)
	if err != nil {
		return nil, l, err
	}
	nodes, err := c.read(ctx, k, c.layout.path(name), l.entries[:holders(l.entries)])
	if err != nil {
		return nil, l, err
	}
	leases, err := c.read(ctx, k, c.layout.leases(name), l.leases)
	return append(nodes, leases...), l, err
}

func (c *client) info(ctx context.Context, k *keeper, name string) (driver.Info, error) {
	nodes, l, err := c.holding(ctx, k, name)
	if err != nil {
		return driver.Info{}, err
	}
	waiting, err := c.read(ctx, k, c.layout.path(name), l.entries[holders(l.entries):])
	if err != nil {
		return driver.Info{}, err
	}
	places, err := c.read(ctx, k, c.layout.locks(name), l.waiting)
	if err != nil {
		return driver.Info{}, err
	}
	left, err := c.left(ctx, k, nodes, l.now)
	if err != nil {
		return driver.Info{}, err
	}
	info := driver.Info{Name: name, Slots: l.slots}
	age := func(n *node) time.Duration { return time.Duration(max(0, l.now-n.stat.Ctime)) * time.Millisecond }
	for i := range nodes {
		n := &nodes[i]
		h := driver.Holder{
			Owner: n.owner(), Mode: n.mode(), Token: n.token, Note: n.note, Held: age(n), Expires: left[n.stat.EphemeralOwner],
		}
		if n.stem == stemLease {
			h.Mode, h.Permits = driver.Slot, 1
			same := func(o driver.Holder) bool { return o.Owner == h.Owner && o.Token == h.Token }
			if j := slices.IndexFunc(info.Holders, same); j >= 0 {
				info.Holders[j].Permits++
				continue
			}
		}
		info.Holders = append(info.Holders, h)
	}
	add := func(nodes []node, mode func(*node) driver.Mode) {
		for i := range nodes {
			n := &nodes[i]
			info.Waiters = append(info.Waiters, driver.Waiter{Owner: n.owner(), Mode: mode(n), Note: n.note, Waiting: age(n)})
		}
	}
	add(waiting, func(n *node) driver.Mode { return n.mode() })
	add(places, func(*node) driver.Mode { return driver.Slot })
	return info, nil
}

// left returns in how long each session ends that is Holdfast's.
func (c *client) left(ctx context.Context, k *keeper, nodes []node, now int64) (map[int64]time.Duration, error) {
	left := map[int64]time.Duration{}
	var ids []int64
	var ops []zk.Op
	for i := range nodes {
		id := nodes[i].stat.EphemeralOwner
		if _, ok := left[id]; !ok {
			left[id] = 0
			ids, ops = append(ids, id), append(ops, zk.GetData(c.layout.session(id), nil))
		}
	}
	replies, err := k.do(ctx, ops...)
	for i, reply := range replies {
		timeout, err := strconv.ParseInt(string(reply.Data), 10, 32)
		if reply.Err == nil && err == nil && timeout > 0 {
			rest := min(max(reply.Stat.Mtime+timeout-now, 1), timeout)
			left[ids[i]] = time.Duration(rest) * time.Millisecond
		}
	}
	return left, err
}

// listedAtOnce is how many paths List asks for in one write.
const listedAtOnce = 500

// List implements driver.Inspector. It walks through all paths that begin with the prefix.
func (c *client) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		err := c.alive(ctx)
		var names []string
		if err == nil {
			names, err = c.scan(ctx, prefix)
		}
		for _, name := range names {
			var info driver.Info
			info, err = c.Inspect(ctx, name)
			if err != nil || !info.Idle() && !yield(info, nil) {
				break
			}
		}
		if err != nil {
			yield(driver.Info{}, err)
		}
	}
}

// scan returns the names that begin with prefix and have nodes of locks, sorted.
func (c *client) scan(ctx context.Context, prefix string) ([]string, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	k, err := c.anyKeeper(ctx)
	if err != nil {
		return nil, err
	}
	defer k.leave()
	// Only paths below the prefix's last slash can begin with it.
	var names []string
	next := []string{prefix[:max(0, strings.LastIndexByte(prefix, '/'))]}
	for len(next) > 0 {
		some := next[:min(len(next), listedAtOnce)]
		next = next[len(some):]
		ops := make([]zk.Op, len(some))
		for i, name := range some {
			ops[i] = zk.Children(max(strings.TrimSuffix(c.layout.path(name), "/"), "/"), nil)
		}
		replies, err := k.do(ctx, ops...)
		if err != nil {
			return nil, err
		}
		for i, reply := range replies {
			if errors.Is(reply.Err, zk.NoNode) || errors.Is(reply.Err, zk.NoAuth) {
				continue
			}
			if reply.Err != nil {
				return nil, reply.Err
			}
			kids := parseChildren(reply.Children)
			if some[i] != "" && (len(kids.entries) > 0 || kids.semaphore) && strings.HasPrefix(some[i], prefix) {
				names = append(names, some[i])
			}
			for _, child := range reply.Children {
				name := strings.TrimPrefix(some[i]+"/"+child, "/")
				if c.layout.checkName(name) == nil && (strings.HasPrefix(name, prefix) || strings.HasPrefix(prefix, name+"/")) {
					next = append(next, name)
				}
			}
		}
	}
	slices.Sort(names)
	return names, nil
}

// Watch implements driver.Watcher: by watches on the lists of the name's nodes, and on the nodes that
// hold it, whose data are the notes.
func (c *client) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	n := &notice{c: c, name: name, changed: make(chan struct{}, 1), hints: make(chan struct{}, 1)}
	if err := c.operate(ctx, name, func(ctx context.Context, _ *keeper) error { return n.arm(ctx) }); err != nil {
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
	c       *client
	name    string
	k       *keeper // nil: none
	watch   *zk.Watch
	changed chan struct{} // a value: the watch was told something
	hints   chan struct{}
}

// arm sets the watches, in a session that is alive.
func (n *notice) arm(ctx context.Context) error {
	if n.k != nil && n.k.session.Err() != nil {
		n.end()
	}
	if n.k == nil {
		k, err := n.c.anyKeeper(ctx)
		if err != nil {
			return err
		}
		n.k, n.watch = k, zk.NewWatch(func(zk.Event) { signal(n.changed) })
	}
	path, leases := n.c.layout.path(n.name), n.c.layout.leases(n.name)
	replies, err := n.k.do(ctx, zk.Exists(path, n.watch), zk.Children(path, n.watch), zk.Children(leases, n.watch))
	if err != nil {
		return err
	}
	entries := parseChildren(replies[1].Children).entries
	var ops []zk.Op
	for _, e := range entries[:holders(entries)] {
		ops = append(ops, zk.GetData(path+"/"+e.name, n.watch))
	}
	for _, child := range replies[2].Children {
		ops = append(ops, zk.GetData(leases+"/"+child, n.watch))
	}
	replies, err = n.k.do(ctx, ops...)
	for i := range replies {
		if err == nil && replies[i].Err != nil && !errors.Is(replies[i].Err, zk.NoNode) {
			err = replies[i].Err
		}
	}
	return err
}

// end forgets the watches.
func (n *notice) end() {
	if n.k != nil {
		n.k.session.Unwatch(n.watch)
		n.k.leave()
		n.k = nil
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
	for {
		select {
		case <-n.changed:
		case <-ctx.Done():
			return
		}
		signal(n.hints)
		for again := true; again; {
			bounded, cancel := n.c.bounded(ctx)
			err := n.arm(bounded)
			cancel()
			again = err != nil && sleep(ctx, watchPause)
		}
		signal(n.hints) // something may have changed before the watches were set again
	}
}
