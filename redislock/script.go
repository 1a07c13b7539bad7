package redislock

import (
	"context"
	"embed"
	"fmt"

	"github.com/holdfastlock/holdfast/redislock/internal/wire"
)

//go:embed lua/*.lua lua/redisson/*.lua
var luaFiles embed.FS

// lua returns the text of some files.
func lua(names ...string) string {
	paths := make([]string, len(names))
	for i, name := range names {
		paths[i] = "lua/" + name
	}
	return wire.Lua(luaFiles, paths...)
}

// script is one operation.
type script = wire.Script

func scriptOf(text string) *script { return wire.ScriptOf(text) }

var (
	takeScript      = lifeScriptOf(lua("clock", "life", "fields", "idle", "take"))
	askScript       = lifeScriptOf(lua("clock", "life", "fields") + "if ARGV[5] then\n" + lua("idle") + "end\n" + lua("record", "ask"))
	renewScript     = lifeScriptOf(lua("clock", "life", "record", "renew"))
	releaseScript   = lifeScriptOf(lua("clock", "life", "record", "release"))
	breakScript     = lifeScriptOf(lua("clock", "life", "record", "break"))
	downgradeScript = lifeScriptOf(lua("clock", "life", "record", "downgrade"))
	inspectScript   = lifeScriptOf(lua("clock", "life", "fields", "record", "inspect"))
	liveScript      = scriptOf(lua("clock", "life", "live"))
)

// run runs a script, several times in one pipeline. A server that was restarted does not know the
// script, and has not run it: then run sends it again with its text.
func (l route) run(ctx context.Context, s *script, commands ...Command) []answer {
	replies := l.do(ctx, commands)
	var again []Command
	var at []int
	for i := range replies {
		if s.Again(&replies[i].Reply, &commands[i]) {
			again, at = append(again, commands[i]), append(at, i)
		}
	}
	if again == nil {
		return replies
	}
	for i, r := range l.do(ctx, again) {
		replies[at[i]] = r
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

// errUnexpected says that the reply is not one of our scripts': another program has answered, or has
// written the key.
func errUnexpected(value any) error {
	return fmt.Errorf("redis answered %.100q, which is no reply of the script", fmt.Sprint(value))
}

// field returns a field of a reply, if it has one of that type.
func field[T any](reply []any, i int) (v T, ok bool) {
	if i < len(reply) {
		v, ok = reply[i].(T)
	}
	return v, ok
}

// number, str and list return a field of a reply. They return -1, "" and nil if it has none of that
// type, so that no unexpected reply looks like replyOK.
func number(reply []any, i int) int64 {
	if n, ok := field[int64](reply, i); ok {
		return n
	}
	return -1
}

func str(reply []any, i int) string { s, _ := field[string](reply, i); return s }
func list(reply []any, i int) []any { l, _ := field[[]any](reply, i); return l }
