package redislock

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// lua returns the text of some files.
func lua(names ...string) (text string) {
	for _, name := range names {
		part, err := luaFiles.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err)
		}
		text += string(part)
	}
	return text
}

// script is one operation.
type script struct{ text, sha string }

var (
	takeScript = scriptOf(lua("clock", "fields", "idle", "take"))
	askScript  = scriptOf(lua("clock", "fields") + "if ARGV[3] then\n" + lua("idle") + "else\n" + lua("confirm") + "end\n" +
		lua("record", "ask"))
	renewScript     = scriptOf(lua("clock", "record", "renew"))
	raiseScript     = scriptOf(lua("clock", "record", "raise"))
	releaseScript   = scriptOf(lua("clock", "record", "release"))
	breakScript     = scriptOf(lua("clock", "record", "break"))
	downgradeScript = scriptOf(lua("clock", "record", "downgrade"))
	inspectScript   = scriptOf(lua("clock", "fields", "record", "inspect"))
)

func scriptOf(text string) *script {
	sum := sha1.Sum([]byte(text))
	return &script{text, hex.EncodeToString(sum[:])}
}

// command is one run of the script.
func (s *script) command(keys []string, args ...string) Command {
	all := make([]string, 0, 3+len(keys)+len(args))
	all = append(all, "EVALSHA", s.sha, strconv.Itoa(len(keys)))
	all = append(all, keys...)
	return Command{Args: append(all, args...), Key: keys[0]}
}

// run runs a script, several times in one pipeline. A server that was restarted does not know the
// script, and has not run it: then run sends it again with its text.
func (l route) run(ctx context.Context, s *script, commands ...Command) []answer {
	replies := l.do(ctx, commands)
	var again []Command
	var at []int
	for i := range replies {
		if unknown(&replies[i]) {
			commands[i].Args[0], commands[i].Args[1] = "EVAL", s.text
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

// unknown reports whether the server did not know the script.
func unknown(r *answer) bool {
	refused, ok := r.Err.(*ServerError)
	return ok && strings.HasPrefix(refused.Text, "NOSCRIPT")
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

// number, str and list return a field of a reply. They return -1, "" and nil if it has none of that
// type, so that no unexpected reply looks like replyOK.
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
