package zklock

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/zksession"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// errUnsure says that nobody knows yet what has become of a request.
var errUnsure = errors.New("ZooKeeper has not said what became of the request")

// dirs are where an owner's nodes can be.
func (c *client) dirs(name string, mode driver.Mode) []string {
	if mode == driver.Slot {
		return []string{c.locks(name), c.leases(name)}
	}
	return []string{c.layout.path(name)}
}

// find returns the paths of an owner's nodes in a session that made them. The session's own node is
// written before: so all that this session has asked for before has taken effect, or never will.
func (c *client) find(ctx context.Context, s *session, name string, g guid, mode driver.Mode) ([]string, error) {
	found, asked, err := c.findAny(ctx, s, name, g, mode)
	if err == nil && zksession.Withdrawn(asked) == zksession.Again {
		err = errUnsure
	}
	if err != nil {
		return nil, err
	}
	return c.ofSession(ctx, s, found)
}

// findAny returns the paths of an owner's nodes of any session, and what was asked for that.
func (c *client) findAny(ctx context.Context, s *session, name string, g guid, mode driver.Mode, more ...zk.Op) ([]string, zksession.Asked, error) {
	dirs := c.dirs(name, mode)
	ops := []zk.Op{s.write()}
	for _, dir := range dirs {
		ops = append(ops, zk.Children(dir, nil))
	}
	replies, err := s.do(ctx, append(ops, more...)...)
	if err != nil {
		return nil, zksession.Asked{Expired: s.zk.Err() != nil}, err
	}
	asked := zksession.Asked{Written: replies[0].Committed, Read: true}
	var found []string
	for i, dir := range dirs {
		reply := &replies[1+i]
		if reply.Err != nil && !errors.Is(reply.Err, zk.NoNode) {
			return nil, asked, reply.Err
		}
		for _, child := range reply.Children {
			if strings.HasPrefix(child, g.protected()) {
				found = append(found, dir+"/"+child)
			}
		}
	}
	asked.There = len(found) > 0
	if len(more) > 0 { // whether an ended session's own node is there
		if last := replies[len(replies)-1].Err; errors.Is(last, zk.NoNode) {
			asked.There = false
		} else if last == nil {
			asked.There = true
		} else {
			asked.Read = false
		}
	}
	return found, asked, nil
}

// ofSession returns those of the nodes that are the session's.
func (c *client) ofSession(ctx context.Context, s *session, paths []string) ([]string, error) {
	if len(paths) == 0 {
		return nil, nil
	}
	var ops []zk.Op
	for _, path := range paths {
		ops = append(ops, zk.Exists(path, nil))
	}
	replies, err := s.do(ctx, ops...)
	if err != nil {
		return nil, err
	}
	var own []string
	for i, reply := range replies {
		if reply.Err == nil && reply.Stat.EphemeralOwner == s.zk.ID() {
			own = append(own, paths[i])
		}
	}
	return own, nil
}

// deleteNodes deletes nodes, and reports whether any was there.
func (s *session) deleteNodes(ctx context.Context, paths []string) (bool, error) {
	if len(paths) == 0 {
		return false, nil
	}
	var ops []zk.Op
	for _, path := range paths {
		ops = append(ops, zk.Delete(path, zk.AnyVersion))
	}
	replies, err := s.do(ctx, ops...)
	return deleted(replies, err)
}

// deleted judges the answers to deletions.
func deleted(replies []zk.Reply, err error) (there bool, _ error) {
	for i := range replies {
		switch e := replies[i].Err; {
		case e == nil:
			there = true
		case !errors.Is(e, zk.NoNode) && err == nil:
			err = fmt.Errorf("deleting a node: %w", e)
		}
	}
	return there, err
}
