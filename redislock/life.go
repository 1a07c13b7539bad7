package redislock

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/internal/life"
)

// A server that keeps its data in memory, or whose place a replica has taken, may have forgotten holds. The rule of
// package life is carried out by the scripts: lua/life.lua. The connection tells them the server's life: see
// Command.Life. The server remembers it in a key. In a cluster each master has a key of its own, in one of its slots.

// forgetting is how a link keeps the rule. The zero value does not.
type forgetting struct {
	on      bool
	mu      sync.Mutex
	rules   life.Rules
	numbers map[string]int // of the key of each master of a cluster; mu guards it
}

// lifeScriptOf returns a script that begins with lua/life.lua.
func lifeScriptOf(text string) *script {
	s := scriptOf(text)
	s.Life = true
	return s
}

// command returns one run of a script.
func (c *link) command(s *script, keys []string, args ...string) Command {
	if !s.Life {
		return s.Command(keys, args...)
	}
	command := s.Command(keys, append(args, c.lifeKey(keys[0]))...)
	if command.Life = c.forgetting.on && c.tellsLife; !command.Life {
		command.Args = append(command.Args, "")
	}
	return command
}

// lifeKey returns the key in which the server that has that key remembers its life, or "" if the rule is off.
func (c *link) lifeKey(key string) string {
	if !c.forgetting.on {
		return ""
	}
	return c.lifeKeyOf(c.part(key))
}

// lifeKeyOf is lifeKey for a part.
func (c *link) lifeKeyOf(part string) string {
	if part == "" {
		return c.layout.life(0)
	}
	c.forgetting.mu.Lock()
	defer c.forgetting.mu.Unlock()
	n := c.forgetting.numbers[part]
	for tries := 0; tries < mostMasters && c.part(c.layout.life(n)) != part; tries++ {
		n++
	}
	c.forgetting.numbers[part] = n
	return c.layout.life(n)
}

// mostMasters bounds how many keys are tried until one is in a slot of the master. Of a thousand masters, as many as a
// cluster has at most, this misses one in a million times.
const mostMasters = 16384

// begin makes the server begin its life, if it has not. It reports whether the connection knows an old life of the
// server.
func (c *link) begin(ctx context.Context, key string) (stale bool, err error) {
	command := liveScript.Command([]string{key}, decimal(micros(c.forgetting.rules.Wait())), "")
	if command.Life = c.tellsLife; !command.Life {
		command.Args = append(command.Args, "")
	}
	reply := c.shared.run(ctx, liveScript, command)[0]
	same, ok := reply.Value.(int64)
	switch {
	case reply.Err != nil:
		return false, Explain(reply.Err)
	case !ok:
		return false, errUnexpected(reply.Value)
	}
	return same == 0, nil
}

// unbegun reports whether a reply of ask.lua or setnx_take.lua says that nothing can be granted, because the server has
// not begun its life.
func unbegun(reply *answer) bool {
	fields, _ := reply.Value.([]any)
	return reply.Err == nil && len(fields) > 6 && fields[6] == int64(-1)
}

// startForgetting makes each server begin its life, so that it knows this client's longest TTL. It reports whether a
// primary that has lost its replicas stops granting.
func (c *link) startForgetting(ctx context.Context, longest time.Duration) (stops bool, err error) {
	c.forgetting.rules.MaxTTL, c.forgetting.numbers = longest, map[string]int{}
	c.forgetting.rules.Lag, stops = c.lag(ctx)
	_, c.tellsLife = c.conn.(livesTeller)
	for _, part := range c.parts() {
		stale, err := c.begin(ctx, c.lifeKeyOf(part))
		if err != nil {
			return stops, err
		}
		c.tellsLife = c.tellsLife && !stale // a connection by way of a proxy may reach several servers
	}
	return stops, nil
}

// live makes the server begin its life, for a command which has found that it has not. If the connection knows an old
// life, the command's script asks for the present one, and the connections are made anew.
func (c *link) live(ctx context.Context, command *Command) error {
	key, at := c.lifeKey(command.Key), len(command.Args)-1
	if !command.Life {
		at--
	}
	command.Args[at] = key // of another server of a cluster, if the slot has moved
	stale, err := c.begin(ctx, key)
	if stale && command.Life {
		c.conn.(livesTeller).Outlived()
		command.Life, command.Args = false, append(command.Args, "")
	}
	return err
}

// livesTeller is a Conn that knows the servers' lives: see Command.Life.
type livesTeller interface {
	// Outlived makes the connections anew, because what they know of the lives is old.
	Outlived()
}

// errLives says that the server's life could not be begun.
var errLives = errors.New("the server has begun another life while the lock was asked for: a fail-over may be under way")

// lag returns for how long a primary that has lost its replicas goes on to grant, and reports whether it stops at all: if
// min-replicas-to-write is set. A server that does not tell, or not to this user, is taken for one that does not stop.
func (c *link) lag(ctx context.Context) (time.Duration, bool) {
	var numbers [2]int
	for i, setting := range [...]string{"min-replicas-to-write", "min-replicas-max-lag"} {
		reply := c.shared.do(ctx, []Command{{Args: []string{"CONFIG", "GET", setting}}})[0]
		pair, _ := reply.Value.([]any)
		n, err := strconv.Atoi(str(pair, 1))
		if err != nil || n <= 0 {
			return 0, false
		}
		numbers[i] = n
	}
	return time.Duration(numbers[1]+1) * time.Second, true
}
