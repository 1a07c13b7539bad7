package doctor

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/redislock"
)

// attempt is a command that the driver needs, tried on a key or a channel of the doctor's own. Keys
// expire in a second, because the driver, and so the doctor, needs no permission to delete them.
type attempt struct {
	command  string // as in an ACL rule
	inScript bool   // the driver runs it from its scripts
	args     func(key, channel string) []string
}

// callScript is a script that runs the command in its arguments.
const callScript = "return redis.call(unpack(ARGV))"

// Suffixes of the keys that are tried as those of a name: a sorted set and a hash.
const (
	sorted = ":queue"
	hash   = ":places"
)

// needed are the commands that package redislock runs. A test compares them with the commands that a
// server has received from the driver.
var needed = []attempt{
	{"eval", false, func(key, _ string) []string { return []string{"EVAL", "return 1", "1", key} }},
	{"evalsha", false, func(key, _ string) []string { return []string{"EVALSHA", strings.Repeat("0", 40), "1", key} }},
	{"set", false, func(key, _ string) []string { return []string{"SET", key, "1", "PX", "1000"} }},
	{"get", false, func(key, _ string) []string { return []string{"GET", key} }},
	{"scan", false, func(key, _ string) []string { return []string{"SCAN", "0", "MATCH", key, "COUNT", "1"} }},
	{"zrem", false, func(key, _ string) []string { return []string{"ZREM", key + sorted, "member"} }},
	{"time", true, func(string, string) []string { return []string{"TIME"} }},
	{"zadd", true, func(key, _ string) []string { return []string{"ZADD", key + sorted, "1", "member"} }},
	{"pexpire", true, func(key, _ string) []string { return []string{"PEXPIRE", key + sorted, "1000"} }},
	{"zrange", true, func(key, _ string) []string { return []string{"ZRANGE", key + sorted, "0", "-1"} }},
	{"zrank", true, func(key, _ string) []string { return []string{"ZRANK", key + sorted, "member"} }},
	{"zscore", true, func(key, _ string) []string { return []string{"ZSCORE", key + sorted, "member"} }},
	{"zcard", true, func(key, _ string) []string { return []string{"ZCARD", key + sorted} }},
	{"zrem", true, func(key, _ string) []string { return []string{"ZREM", key + sorted, "member"} }},
	{"hset", true, func(key, _ string) []string { return []string{"HSET", key + hash, "field", "1"} }},
	{"pexpire", true, func(key, _ string) []string { return []string{"PEXPIRE", key + hash, "1000"} }},
	{"hget", true, func(key, _ string) []string { return []string{"HGET", key + hash, "field"} }},
	{"hgetall", true, func(key, _ string) []string { return []string{"HGETALL", key + hash} }},
	{"hdel", true, func(key, _ string) []string { return []string{"HDEL", key + hash, "field"} }},
	{"pubsub|numsub", true, func(_, channel string) []string { return []string{"PUBSUB", "NUMSUB", channel} }},
	{"publish", true, func(_, channel string) []string { return []string{"PUBLISH", channel, ""} }},
}

// needs is what a layout needs.
type needs struct {
	attempts   []attempt
	key        string   // of the doctor's own
	keys       []string // that scripts use
	channel    string
	subscribes []string // the commands of subscriptions
	patterns   string   // ACL rules for keys and channels
}

// needs returns what locks need of the server.
func (r *redisServer) needs(ctx context.Context) needs {
	if r.layout == redislock.Redisson {
		return r.needsOfRedisson(ctx)
	}
	return needs{
		attempts: needed, key: r.scratch, keys: []string{r.scratch, r.scratch + sorted, r.scratch + hash}, channel: r.channel,
		subscribes: []string{"subscribe"}, patterns: "~" + redislock.DefaultPrefix + ":* &" + redislock.DefaultPrefix + ":*",
	}
}

// redisAccess tries every command that locks need.
func redisAccess(ctx context.Context, r *redisServer) []Finding {
	const check = "access"
	if !r.master() {
		return nil // redisPlace reports why
	}
	n := r.needs(ctx)
	commands := make([]redislock.Command, len(n.attempts))
	for i, a := range n.attempts {
		args := a.args(n.key, n.channel)
		if a.inScript {
			args = append(append([]string{"EVAL", callScript, strconv.Itoa(len(n.keys))}, n.keys...), args...)
		}
		commands[i].Args = args
	}
	var denied, why []string
	trouble := "" // why the server itself refuses writes, whoever asks
	for i, reply := range r.conn.Do(ctx, commands) {
		a, err := n.attempts[i], reply.Err
		if refused, ok := errors.AsType[*redislock.ServerError](err); ok && serverTrouble.MatchString(refused.Text) {
			trouble = refused.Text
		} else if ok && !strings.HasPrefix(refused.Text, "NOSCRIPT") {
			denied = append(denied, strings.ToUpper(a.command))
			why = append(why, refused.Text)
		} else if err != nil && !ok {
			return connectionTrouble(check, err)
		}
	}
	if n.subscribes[0] == "subscribe" { // of sharded channels redisClusterChecks tells
		if err := receivesMessages(ctx, r, &n); err != nil {
			denied = append(denied, "SUBSCRIBE")
			why = append(why, err.Error())
		}
	}
	switch {
	case denied == nil && trouble != "":
		return []Finding{inTrouble(trouble)}
	case denied == nil:
		return good(check, "user %q may do all that locks need", r.user)
	}
	slices.Sort(denied)
	findings := []Finding{{
		Check: check, Severity: Error,
		Found: fmt.Sprintf("user %q was refused: %s (%s)", r.user, strings.Join(slices.Compact(denied), ", "), strings.Join(slices.Compact(why), "; ")),
		Risk:  "locks cannot be taken, or are not handed over, or not listed",
		Remedy: "if it is a permission that is missing, run ACL SETUSER " + r.user +
			" " + n.patterns + " " + n.rules(),
	}}
	if trouble != "" {
		findings = append(findings, inTrouble(trouble))
	}
	return findings
}

// serverTrouble matches refusals that have nothing to do with permissions, also as older servers report
// them from within a script.
var serverTrouble = regexp.MustCompile(`(^|-)(OOM|MISCONF|READONLY|LOADING|BUSY|MASTERDOWN|NOREPLICAS|CLUSTERDOWN) `)

// inTrouble is the finding if the server refuses writes.
func inTrouble(text string) Finding {
	f := Finding{
		Check: "writes", Severity: Error, Found: "the server refuses writes: " + text,
		Risk:   "no lock can be taken, renewed or given back",
		Remedy: "see the server's log; permissions have nothing to do with it",
	}
	if strings.Contains(text, "OOM ") {
		f.Found = "the server is full: " + text
		f.Remedy = "raise maxmemory or delete other data, and give locks a server of their own; permissions have nothing to do with it"
	}
	return f
}

// rules are the ACL rules that allow the commands.
func (n *needs) rules() string {
	var allowed []string
	for _, command := range n.subscribes {
		allowed = append(allowed, "+"+command)
	}
	for _, a := range n.attempts {
		allowed = append(allowed, "+"+a.command)
	}
	slices.Sort(allowed)
	return strings.Join(slices.Compact(allowed), " ")
}

// messageWithin is how long a message may take.
const messageWithin = 3 * time.Second

// receivesMessages subscribes to a channel, publishes on it, and waits for the message. A failure of
// PUBLISH is not its finding: that command is tried by itself.
func receivesMessages(ctx context.Context, r *redisServer, n *needs) error {
	ctx, cancel := context.WithTimeout(ctx, messageWithin)
	defer cancel()
	received := make(chan struct{}, 1)
	stop, err := r.conn.Subscribe(ctx, n.channel, func(string) {
		select {
		case received <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return err
	}
	defer stop()
	if r.ask(ctx, "EVAL", callScript, "1", n.key, "PUBLISH", n.channel, "1").Err != nil {
		return nil
	}
	select {
	case <-received:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("a message that was published did not come within %v", messageWithin)
	}
}

// connectionTrouble is the finding if the server has not answered.
func connectionTrouble(check string, err error) []Finding {
	return []Finding{{
		Check: check, Severity: Error, Found: fmt.Sprintf("the server has not answered: %v", err),
		Risk:   "locks are lost when they cannot be renewed",
		Remedy: "check the server, and the network on the way to it",
	}}
}
