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

// node is what the store says of one entry.
type node struct {
	entry
	path  string
	stat  zk.Stat
	note  string
	token driver.Token
}

// read reads the data of entries in a directory. Those that have gone meanwhile are left out.
func (c *client) read(ctx context.Context, s *session, dir string, entries []entry) ([]node, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	ops := make([]zk.Op, len(entries))
	for i, e := range entries {
		ops[i] = zk.GetData(dir+"/"+e.name, nil)
	}
	replies, err := s.do(ctx, ops...)
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
func (c *client) list(ctx context.Context, s *session, name string) (listing, error) {
	replies, err := s.do(ctx, s.write(),
		zk.Children(c.layout.path(name), nil), zk.Children(c.locks(name), nil), zk.Children(c.leases(name), nil), zk.GetData(c.leases(name), nil))
	if err != nil {
		return listing{}, err
	}
	if errors.Is(replies[0].Err, zk.NoNode) { // somebody has deleted it
		if err := s.makeNode(ctx); err != nil {
			return listing{}, err
		}
		return c.list(ctx, s, name)
	}
	for i := range replies {
		if err := replies[i].Err; err != nil && !errors.Is(err, zk.NoNode) {
			return listing{}, err
		}
	}
	l := listing{
		entries: parseChildren(replies[1].Children).entries, waiting: parseChildren(replies[2].Children).entries,
		leases: parseChildren(replies[3].Children).entries, now: replies[0].Stat.Mtime,
	}
	if len(l.leases)+len(l.waiting) > 0 {
		l.slots = parseSlots(replies[4].Data)
	}
	return l, nil
}

// holding returns the nodes that hold a name, and its listing.
func (c *client) holding(ctx context.Context, s *session, name string) ([]node, listing, error) {
	l, err := c.list(ctx, s, name)
	if err != nil {
		return nil, l, err
	}
	nodes, err := c.read(ctx, s, c.layout.path(name), l.entries[:holders(l.entries)])
	if err != nil {
		return nil, l, err
	}
	leases, err := c.read(ctx, s, c.leases(name), l.leases)
	return append(nodes, leases...), l, err
}

// Inspect implements driver.Inspector. Since when a hold is held is by the clock of the leader. When it
// expires is known of Holdfast's sessions, from the last write of their own nodes.
func (c *client) Inspect(ctx context.Context, name string) (driver.Info, error) {
	if err := c.layout.checkName(name); err != nil {
		return driver.Info{}, err
	}
	if err := c.alive(ctx); err != nil {
		return driver.Info{}, err
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	s, err := c.anySession(ctx)
	if err != nil {
		return driver.Info{}, err
	}
	defer s.leave()
	var info driver.Info
	err = c.retrying(ctx, func() (err error) {
		info, err = c.info(ctx, s, name)
		return err
	})
	return info, err
}

func (c *client) info(ctx context.Context, s *session, name string) (driver.Info, error) {
	nodes, l, err := c.holding(ctx, s, name)
	if err != nil {
		return driver.Info{}, err
	}
	waiting, err := c.read(ctx, s, c.layout.path(name), l.entries[holders(l.entries):])
	if err != nil {
		return driver.Info{}, err
	}
	places, err := c.read(ctx, s, c.locks(name), l.waiting)
	if err != nil {
		return driver.Info{}, err
	}
	left, err := c.left(ctx, s, nodes, l.now)
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
	for i := range waiting {
		n := &waiting[i]
		info.Waiters = append(info.Waiters, driver.Waiter{Owner: n.owner(), Mode: n.mode(), Note: n.note, Waiting: age(n)})
	}
	for i := range places {
		n := &places[i]
		info.Waiters = append(info.Waiters, driver.Waiter{Owner: n.owner(), Mode: driver.Slot, Note: n.note, Waiting: age(n)})
	}
	return info, nil
}

// left returns in how long each session ends that is Holdfast's.
func (c *client) left(ctx context.Context, s *session, nodes []node, now int64) (map[int64]time.Duration, error) {
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
	if len(ops) == 0 {
		return left, nil
	}
	replies, err := s.do(ctx, ops...)
	if err != nil {
		return nil, err
	}
	for i, reply := range replies {
		timeout, err := strconv.ParseInt(string(reply.Data), 10, 32)
		if reply.Err != nil || err != nil || timeout <= 0 {
			continue
		}
		rest := min(max(reply.Stat.Mtime+timeout-now, 1), timeout)
		left[ids[i]] = time.Duration(rest) * time.Millisecond
	}
	return left, nil
}

// listedAtOnce is how many paths List asks for in one write.
const listedAtOnce = 500

// List implements driver.Inspector. It walks through all paths that begin with the prefix.
func (c *client) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		if err := c.alive(ctx); err != nil {
			yield(driver.Info{}, err)
			return
		}
		names, err := c.scan(ctx, prefix)
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
	s, err := c.anySession(ctx)
	if err != nil {
		return nil, err
	}
	defer s.leave()
	// Only paths below the prefix's last slash can begin with it.
	var names []string
	next := []string{""}
	if i := strings.LastIndexByte(prefix, '/'); i > 0 {
		next = []string{prefix[:i]}
	}
	for len(next) > 0 {
		some := next[:min(len(next), listedAtOnce)]
		next = next[len(some):]
		ops := make([]zk.Op, len(some))
		for i, name := range some {
			path := c.layout.path(name)
			if name == "" {
				path = c.layout.prefix
			}
			ops[i] = zk.Children(max(path, "/"), nil)
		}
		replies, err := s.do(ctx, ops...)
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
