package cluster

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/internal/slot"
	"github.com/holdfastlock/holdfast/redislock/internal/subscription"
)

// shard is the subscription to a sharded channel at one server.
type shard struct {
	tag atomic.Pointer[string] // nil: not subscribed
}

// Join implements redislock.Sharded.
func (c *Conn) Join(key string, channel func(tag string) string, deliver func(string)) {
	address := c.Part(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	if address == "" || c.shards[address] != nil || c.closed {
		return
	}
	s := &shard{}
	c.shards[address] = s
	c.work.Go(func() { c.listen(address, s, channel, deliver) })
}

// Tag implements redislock.Sharded.
func (c *Conn) Tag(key string) string {
	address := c.Part(key)
	c.mu.Lock()
	s := c.shards[address]
	c.mu.Unlock()
	if s == nil {
		return ""
	}
	if tag := s.tag.Load(); tag != nil {
		return *tag
	}
	return ""
}

// listen keeps a subscription at a server until that has no slots any more, or refuses.
func (c *Conn) listen(address string, s *shard, channel func(tag string) string, deliver func(string)) {
	ctx, end := context.WithCancel(c.alive)
	defer end()
	subscription.Keep(ctx, func(ctx context.Context) (session subscription.Session, err error) {
		s.tag.Store(nil)
		tag := c.table.Load().tagOf(address)
		if tag == "" {
			end()
			c.mu.Lock()
			delete(c.shards, address) // it may have slots again later
			c.mu.Unlock()
			return session, errUncovered
		}
		if _, session, err = c.session(ctx, address, channel(tag), true, deliver); err == nil {
			s.tag.Store(&tag)
		} else if neverShards(err) {
			end()
		}
		return session, err
	}, deliver)
	s.tag.Store(nil)
	deliver("")
}

// neverShards reports whether a server has refused a sharded channel in a way that will not change by
// itself: it is older than Redis 7, or the user may not.
func neverShards(err error) bool {
	refused := (*redislock.ServerError)(nil)
	return errors.As(err, &refused) && (strings.Contains(refused.Text, "unknown command") || refused.Code() == "NOPERM")
}

// tagOf returns a hash tag in the lowest slot that a server has, or "" if it has none. Clients with the same
// table find the same.
func (t *table) tagOf(address string) string {
	if i := slices.Index(t.of[:], address); i >= 0 {
		return slot.Tag(i)
	}
	return ""
}
