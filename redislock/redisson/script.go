package redisson

import (
	"context"
	"embed"

	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/internal/wire"
)

//go:embed lua/*.lua
var files embed.FS

var (
	acquireScript     = script("acquire")
	releaseScript     = script("release")
	createScript      = script("create")
	addScript         = script("add")
	drainScript       = script("drain")
	latchCreateScript = script("latch_create")
	latchDownScript   = script("latch_down")
	latchDeleteScript = script("latch_delete")
)

func script(name string) *wire.Script {
	return wire.ScriptOf(wire.Lua(files, "lua/value", "lua/"+name))
}

// run returns a request that runs the script. A server that was restarted does not know the script, and has
// not run it: then it is sent with its text.
func (c *Client) run(s *wire.Script, keys []string, args ...string) func(context.Context) redislock.Reply {
	return func(ctx context.Context) redislock.Reply {
		commands := []redislock.Command{s.Command(keys, args...)}
		reply := c.conn.Do(ctx, commands)[0]
		if s.Again(&reply, &commands[0]) {
			reply = c.conn.Do(ctx, commands)[0]
		}
		return reply
	}
}
