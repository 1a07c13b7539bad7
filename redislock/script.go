package redislock

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

//go:embed lua/clock.lua
var clockLua string

//go:embed lua/ask_fast.lua
var askFastLua string

//go:embed lua/release_fast.lua
var releaseFastLua string

//go:embed lua/record.lua
var recordLua string

//go:embed lua/ask.lua
var askLua string

//go:embed lua/renew.lua
var renewLua string

//go:embed lua/release.lua
var releaseLua string

//go:embed lua/break.lua
var breakLua string

//go:embed lua/downgrade.lua
var downgradeLua string

//go:embed lua/inspect.lua
var inspectLua string

// script is one operation: the text that all share, and its own.
type script struct{ text, sha string }

var (
	askScript       = newScript(askFastLua, askLua)
	renewScript     = newScript("", renewLua)
	releaseScript   = newScript(releaseFastLua, releaseLua)
	breakScript     = newScript("", breakLua)
	downgradeScript = newScript("", downgradeLua)
	inspectScript   = newScript("", inspectLua)
)

// newScript puts a script together: a fast path may answer before the record's
// functions are made, which costs more than all else.
func newScript(fast, own string) *script { return scriptOf(clockLua + fast + recordLua + own) }

func scriptOf(text string) *script {
	sum := sha1.Sum([]byte(text))
	return &script{text, hex.EncodeToString(sum[:])}
}

// call is one run of a script.
type call struct {
	*script
	keys, args []string
}

func (c call) command(verb, what string) Command {
	args := make([]string, 0, 3+len(c.keys)+len(c.args))
	args = append(args, verb, what, strconv.Itoa(len(c.keys)))
	args = append(args, c.keys...)
	args = append(args, c.args...)
	return Command{Args: args, Key: c.keys[0]}
}

// run runs scripts in one pipeline. The server forgets scripts when it is
// restarted; it has then not run any, so they are sent again with their text.
func (c *client) run(ctx context.Context, calls ...call) []Reply {
	commands := make([]Command, len(calls))
	for i, call := range calls {
		commands[i] = call.command("EVALSHA", call.sha)
	}
	replies := c.conn.Do(ctx, commands)
	var unknown []int
	commands = commands[:0]
	for i, r := range replies {
		if r.Err == nil {
			continue
		}
		if refused := (*ServerError)(nil); errors.As(r.Err, &refused) && strings.HasPrefix(refused.Text, "NOSCRIPT") {
			unknown = append(unknown, i)
			commands = append(commands, calls[i].command("EVAL", calls[i].text))
		}
	}
	if unknown != nil {
		for i, r := range c.conn.Do(ctx, commands) {
			replies[unknown[i]] = r
		}
	}
	return replies
}

// What the scripts reply.
const (
	replyOK = iota
	replyHeld
	replyMismatch
	replyNotHeld
	replyBroken
)

// errStrange says that something else than our scripts has answered, or that
// something else than they has written the key.
func errStrange(value any) error {
	return fmt.Errorf("redis answered %.100q, which is no reply of the script", fmt.Sprint(value))
}

// number, str and list take a field out of a reply: -1, "" and nil where there is
// none of that type, so that a strange reply never looks like replyOK.
func number(reply []any, i int) int64 {
	if i >= len(reply) {
		return -1
	}
	n, ok := reply[i].(int64)
	if !ok {
		return -1
	}
	return n
}

func str(reply []any, i int) string {
	if i >= len(reply) {
		return ""
	}
	s, _ := reply[i].(string)
	return s
}

func list(reply []any, i int) []any {
	if i >= len(reply) {
		return nil
	}
	l, _ := reply[i].([]any)
	return l
}
