package redisson

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/holdfastlock/holdfast/redislock"
)

//go:embed lua/value.lua
var valueLua string

//go:embed lua/acquire.lua
var acquireLua string

//go:embed lua/release.lua
var releaseLua string

//go:embed lua/create.lua
var createLua string

//go:embed lua/add.lua
var addLua string

//go:embed lua/drain.lua
var drainLua string

//go:embed lua/latch_create.lua
var latchCreateLua string

//go:embed lua/latch_down.lua
var latchDownLua string

//go:embed lua/latch_delete.lua
var latchDeleteLua string

var (
	acquireScript     = scriptOf(acquireLua)
	releaseScript     = scriptOf(releaseLua)
	createScript      = scriptOf(createLua)
	addScript         = scriptOf(addLua)
	drainScript       = scriptOf(drainLua)
	latchCreateScript = scriptOf(latchCreateLua)
	latchDownScript   = scriptOf(latchDownLua)
	latchDeleteScript = scriptOf(latchDeleteLua)
)

// script is one operation.
type script struct{ text, sha string }

func scriptOf(text string) *script {
	text = valueLua + text
	sum := sha1.Sum([]byte(text))
	return &script{text, hex.EncodeToString(sum[:])}
}

// run returns a request that runs the script. A server that was restarted does not know the script, and has
// not run it: then it is sent with its text.
func (c *Client) run(s *script, keys []string, args ...string) func(context.Context) redislock.Reply {
	return func(ctx context.Context) redislock.Reply {
		all := append([]string{"EVALSHA", s.sha, strconv.Itoa(len(keys))}, keys...)
		command := []redislock.Command{{Args: append(all, args...), Key: keys[0]}}
		reply := c.conn.Do(ctx, command)[0]
		if refused, ok := reply.Err.(*redislock.ServerError); ok && strings.HasPrefix(refused.Text, "NOSCRIPT") {
			all[0], all[1] = "EVAL", s.text
			command[0].Args = append(all, args...)
			reply = c.conn.Do(ctx, command)[0]
		}
		return reply
	}
}
