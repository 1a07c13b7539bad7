package zklock

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// operate calls do for an operator, with a keeper and a context that is bounded in time, unless the name that the
// operator asks for is invalid.
func (c *client) operate(ctx context.Context, invalid error, do func(context.Context, *keeper) error) error {
	if err := cmp.Or(invalid, c.alive(ctx)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	k, err := c.anyKeeper(ctx)
	if err != nil {
		return err
	}
	return do(ctx, k)
}

// Break implements driver.Operator. The token names one hold for ever, by the transaction that made its
// node (P4). Its holder learns of the break by a watch on that node.
func (c *client) Break(ctx context.Context, name string, token driver.Token) error {
	return c.operate(ctx, c.layout.checkName(name), func(ctx context.Context, k *keeper) error {
		nodes, _, _, err := c.nodes(ctx, k, name)
		if err != nil {
			return err
		}
		var paths []string
		for _, n := range nodes {
			if n.holds && token > 0 && n.token == token {
				paths = append(paths, n.path)
			}
		}
		there, err := k.deleteNodes(ctx, paths)
		if err == nil && !there {
			err = driver.ErrNotHeld
		}
		return err
	})
}

// revokeMarker is what Curator's Revoker writes to a node to ask its holder to release.
var revokeMarker = []byte("__REVOKE__")

// Revoke asks the holders of a name to release it, as Curator's Revoker: Java's that have made their lock revocable,
// and Go's with Config.OnRevoke. It writes to their nodes, so the note that they showed is gone. Nobody is forced to
// obey: see Breaker.Break. d is a driver of this package. It returns driver.ErrNotHeld if nobody holds the name.
func Revoke(ctx context.Context, d driver.Driver, name string) error {
	c, ok := d.(*client)
	if !ok {
		return fmt.Errorf("revoking in a store of %T: %w", d, driver.ErrUnsupported)
	}
	return c.operate(ctx, c.layout.checkName(name), func(ctx context.Context, k *keeper) error {
		nodes, _, _, err := c.nodes(ctx, k, name)
		if err != nil {
			return err
		}
		asked := false
		for _, n := range nodes {
			if !n.holds {
				break
			}
			if n.stem == stemLatch { // see Latch: nobody would hear that it has gone
				return fmt.Errorf("revoking an entry of LeaderLatch: %w", driver.ErrUnsupported)
			}
			_, err := k.one(ctx, zk.SetData(n.path, revokeMarker, zk.AnyVersion))
			if err != nil && !errors.Is(err, zk.NoNode) { // the hold may have been released
				return err
			}
			asked = asked || err == nil
		}
		if !asked {
			return driver.ErrNotHeld
		}
		return nil
	})
}

// revokedLocked tells of a hold whose node has the marker, once for each time that it was written.
func (c *client) revokedLocked(o *owner, node zk.Reply) {
	if c.onRevoke != nil && !c.isClosed && bytes.Equal(node.Data, revokeMarker) && node.Stat.Mzxid > o.revoked {
		o.revoked = node.Stat.Mzxid
		name, token := o.name, o.token
		c.background.Go(func() { c.onRevoke(name, token) })
	}
}

// Inspect implements driver.Operator. Since when a hold is held is by the clock of the leader. When it
// expires is known of Holdfast's sessions, from the last write of their own nodes.
func (c *client) Inspect(ctx context.Context, name string) (info driver.Info, err error) {
	err = c.operate(ctx, c.layout.checkName(name), func(ctx context.Context, k *keeper) error {
		info, err = c.info(ctx, k, name)
		return err
	})
	return info, err
}

// node is what the store says of one node of a name.
type node struct {
	entry
	path  string
	holds bool
	mode  driver.Mode
	stat  zk.Stat
	note  string
	token driver.Token
}

// nodes reads the nodes of a name: first those that hold it, then those that wait, in order; and how many slots it has.
// Nodes that go before they are read are left out. A write of the keeper's own node tells the server's time, in
// milliseconds; 0: somebody had deleted that node.
func (c *client) nodes(ctx context.Context, k *keeper, name string) (nodes []node, slots int, now int64, err error) {
	path, locks, leases := c.layout.path(name), c.layout.locks(name), c.layout.leases(name)
	replies, err := k.refresh(ctx, c.clock.Now(),
		zk.Exists(k.node, nil), zk.Children(path, nil), zk.Children(locks, nil), zk.Children(leases, nil), zk.GetData(leases, nil))
	if err = failed(replies, err); err != nil {
		return nil, 0, 0, err
	}
	var ops []zk.Op
	add := func(dir string, entries []entry, holds bool) {
		for _, e := range entries {
			n := node{entry: e, path: dir + "/" + e.name, holds: holds, mode: e.mode()}
			if dir != path {
				n.mode = driver.Slot
			}
			nodes, ops = append(nodes, n), append(ops, zk.GetData(n.path, nil))
		}
	}
	entries := parseChildren(replies[1].Children).entries
	add(path, entries[:holders(entries)], true)
	add(leases, parseChildren(replies[3].Children).entries, true)
	add(path, entries[holders(entries):], false)
	add(locks, parseChildren(replies[2].Children).entries, false)
	if slices.ContainsFunc(nodes, func(n node) bool { return n.mode == driver.Slot }) {
		slots = parseSlots(replies[4].Data)
	}
	now = replies[0].Stat.Mtime
	replies, err = k.do(ctx, ops...)
	if err = failed(replies, err); err != nil {
		return nil, 0, 0, err
	}
	there := nodes[:0]
	for i, reply := range replies {
		n := nodes[i]
		n.stat = reply.Stat
		n.note, n.token = parseData(reply.Data)
		if n.token == 0 || n.stem != stemRead {
			n.token = driver.Token(reply.Stat.Czxid)
		}
		if reply.Err == nil {
			there = append(there, n)
		}
	}
	return there, slots, now, nil
}

// failed returns the first error but the want of a node.
func failed(replies []zk.Reply, err error) error {
	for i := range replies {
		if err == nil && !errors.Is(replies[i].Err, zk.NoNode) {
			err = replies[i].Err
		}
	}
	return err
}

func (c *client) info(ctx context.Context, k *keeper, name string) (driver.Info, error) {
	nodes, slots, now, err := c.nodes(ctx, k, name)
	if err != nil {
		return driver.Info{}, err
	}
	left, err := c.left(ctx, k, nodes, now)
	if err != nil {
		return driver.Info{}, err
	}
	info := driver.Info{Name: name, Slots: slots}
	for i := range nodes {
		n := &nodes[i]
		age := time.Duration(max(0, now-n.stat.Ctime)) * time.Millisecond
		if !n.holds {
			info.Waiters = append(info.Waiters, driver.Waiter{Owner: n.owner(), Mode: n.mode, Note: n.note, Waiting: age})
			continue
		}
		h := driver.Holder{Owner: n.owner(), Mode: n.mode, Token: n.token, Note: n.note, Held: age, Expires: left[n.stat.EphemeralOwner]}
		if n.mode == driver.Slot {
			h.Permits = 1
			same := func(o driver.Holder) bool { return o.Owner == h.Owner && o.Token == h.Token }
			if j := slices.IndexFunc(info.Holders, same); j >= 0 {
				info.Holders[j].Permits++
				continue
			}
		}
		info.Holders = append(info.Holders, h)
	}
	return info, nil
}

// left returns in how long each session ends that is Holdfast's.
func (c *client) left(ctx context.Context, k *keeper, nodes []node, now int64) (map[int64]time.Duration, error) {
	left := map[int64]time.Duration{}
	var ids []int64
	var ops []zk.Op
	for i := range nodes {
		id := nodes[i].stat.EphemeralOwner
		if _, ok := left[id]; nodes[i].holds && !ok {
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

// List implements driver.Operator. It walks through all paths that begin with the prefix.
func (c *client) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		var names []string
		err := c.operate(ctx, nil, func(ctx context.Context, k *keeper) (err error) {
			names, err = c.scan(ctx, k, prefix)
			return err
		})
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
func (c *client) scan(ctx context.Context, k *keeper, prefix string) ([]string, error) {
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

// Watch implements driver.Watcher: by watches on the lists of the name's nodes. It ends when they cannot be set again:
// package holdfast then begins another.
func (c *client) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	hints, changed := make(chan struct{}, 1), make(chan struct{}, 1)
	disarm := func() {}
	arm := func(ctx context.Context) error {
		disarm()
		return c.operate(ctx, c.layout.checkName(name), func(ctx context.Context, k *keeper) error {
			w := zk.NewWatch(func(zk.Event) { signal(changed) })
			disarm = func() { k.session.Unwatch(w) }
			path, leases := c.layout.path(name), c.layout.leases(name)
			return failed(k.do(ctx, zk.Exists(path, w), zk.Children(path, w), zk.Children(leases, w)))
		})
	}
	if err := arm(ctx); err != nil {
		disarm()
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		return nil, driver.ErrClosed
	}
	c.background.Go(func() {
		defer close(hints)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(c.life, cancel)()
		for {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			if arm(ctx) != nil {
				disarm()
				return
			}
			signal(hints) // also for what has changed before the watches were set again
		}
	})
	return hints, nil
}
