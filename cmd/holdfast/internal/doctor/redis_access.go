package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/redislock"
)

// needs is what a layout needs of the server. Commands are tried on a key of the doctor's own, which expires
// in a second, because the driver, and so the doctor, needs no permission to delete it.
type needs struct {
	// direct are the commands that the driver sends, scripted those that it runs from scripts. Words in
	// capitals after the command stand for keys, and CHANNEL for the channel.
	direct, scripted []string
	keys             map[string]string
	channel          string
	subscribes       []string // the commands of subscriptions
	patterns         string   // ACL rules for keys and channels
}

// missingScript is the digest of no script.
var missingScript = strings.Repeat("0", 40)

// needs returns what locks need of the server. A test compares the commands with those that a server has
// received from the driver.
func (r *redisServer) needs(ctx context.Context) needs {
	n := needs{
		direct: []string{
			"PING", "EVAL return(1) 1 KEY", "EVALSHA " + missingScript + " 1 KEY", "SET KEY 1 PX 1000", "GET KEY", "SCAN 0 MATCH KEY COUNT 1",
			"ZREM QUEUE member",
		},
		scripted: []string{
			"TIME", "ZADD QUEUE 1 member", "PEXPIRE QUEUE 1000", "ZRANGE QUEUE 0 -1", "ZRANK QUEUE member", "ZSCORE QUEUE member", "ZCARD QUEUE",
			"ZREM QUEUE member", "HSET PLACES field 1", "PEXPIRE PLACES 1000", "HGET PLACES field", "HDEL PLACES field",
			"PUBSUB NUMSUB CHANNEL", "PUBLISH CHANNEL 0",
		},
		keys:    map[string]string{"KEY": r.scratch, "QUEUE": r.scratch + ":queue", "PLACES": r.scratch + ":places"},
		channel: redislock.DefaultPrefix + ":wake:" + rand.Text(), subscribes: []string{"subscribe"},
		patterns: "~" + redislock.DefaultPrefix + ":* &" + redislock.DefaultPrefix + ":*",
	}
	if r.layout == redislock.Redisson {
		n = r.needsOfRedisson(ctx)
	}
	if r.waits { // scripts and connections ask whether the server has forgotten locks (P1)
		n.direct, n.scripted = append(n.direct, "INFO server"), append(n.scripted, "INFO server")
		if key := redislock.DefaultPrefix + ":life:{0}"; !r.cluster { // there another server may have it
			n.direct = append(n.direct, "GET "+key, "EVAL return(1) 1 "+key)
		}
	}
	if r.votes { // clients know by the run_id and by a key whether the server has forgotten its votes (P1)
		n.direct = append(n.direct, "INFO server", "GET MEMORY", "EVAL return(1) 1 MEMORY")
		n.keys["MEMORY"] = redislock.DefaultPrefix + ":memory"
	}
	return n
}

// command returns the name of a command as in ACL rules, and its words.
func (n *needs) command(text string) (name string, words []string) {
	words = strings.Fields(text)
	name = strings.ToLower(words[0])
	if name == "pubsub" {
		name += "|" + strings.ToLower(words[1])
	}
	for i, word := range words {
		if key, is := n.keys[word]; is {
			words[i] = key
		} else if word == "CHANNEL" {
			words[i] = n.channel
		}
	}
	return name, words
}

// acl returns the ACL rules that allow all of it.
func (n *needs) acl() string {
	var allowed []string
	for _, command := range n.subscribes {
		allowed = append(allowed, "+"+command)
	}
	for _, text := range slices.Concat(n.direct, n.scripted) {
		name, _ := n.command(text)
		allowed = append(allowed, "+"+name)
	}
	slices.Sort(allowed)
	return n.patterns + " " + strings.Join(slices.Compact(allowed), " ")
}

// serverTrouble matches refusals that have nothing to do with permissions, also as older servers report
// them from within a script.
var serverTrouble = regexp.MustCompile(`(^|-)(OOM|MISCONF|READONLY|LOADING|BUSY|MASTERDOWN|NOREPLICAS|CLUSTERDOWN) `)

// callScript is a script that runs the command in its arguments.
const callScript = "return redis.call(unpack(ARGV))"

// messageWithin is how long a subscription and its messages may take.
const messageWithin = 3 * time.Second

// tryAccess tries every command that locks need. The error says that the server has not answered.
func (r *redisServer) tryAccess(ctx context.Context) error {
	n := r.needs(ctx)
	r.facts["acl"] = n.acl()
	keys := slices.Collect(maps.Values(n.keys))
	all := slices.Concat(n.direct, n.scripted)
	commands := make([]redislock.Command, len(all))
	for i, text := range all {
		_, words := n.command(text)
		if i >= len(n.direct) {
			words = slices.Concat([]string{"EVAL", callScript, strconv.Itoa(len(keys))}, keys, words)
		}
		commands[i].Args = words
	}
	var denied, why []string
	refuse := func(command, text string) {
		denied, why = append(denied, strings.ToUpper(command)), append(why, text)
	}
	for i, reply := range r.conn.Do(ctx, commands) {
		refused, ok := errors.AsType[*redislock.ServerError](reply.Err)
		switch {
		case reply.Err != nil && !ok:
			return reply.Err
		case ok && serverTrouble.MatchString(refused.Text):
			r.facts["trouble"] = refused.Text
		case ok && !strings.HasPrefix(refused.Text, "NOSCRIPT"):
			name, _ := n.command(all[i])
			refuse(name, refused.Text)
		}
	}
	if n.subscribes[0] == "subscribe" { // in a cluster waiters of the layout redisson poll
		ctx, cancel := context.WithTimeout(ctx, messageWithin)
		defer cancel()
		if stop, err := r.conn.Subscribe(ctx, n.channel, func(string) {}); err != nil {
			refuse("subscribe", err.Error())
		} else {
			stop()
		}
	}
	slices.Sort(denied)
	r.set("denied", strings.Join(slices.Compact(denied), ", "))
	r.set("why", strings.Join(slices.Compact(why), "; "))
	return nil
}

// needsOfRedisson are those of the layout redisson, which has locks under their bare names.
func (r *redisServer) needsOfRedisson(ctx context.Context) needs {
	_, name, _ := strings.Cut(r.scratch, "{")
	name, _, _ = strings.Cut(name, "}")
	tagged := name
	if !strings.Contains(name, "{") {
		tagged = "{" + name + "}"
	}
	n := needs{
		direct: []string{
			"PING", "EVAL return(1) 1 KEY", "EVALSHA " + missingScript + " 1 KEY", "SCAN 0 MATCH KEY COUNT 1", "SET KEY 1 PX 1000", "GET KEY",
		},
		scripted: []string{
			"INCRBY KEY 1", "DECRBY KEY 1", "STRLEN KEY", "GET KEY", "DEL KEY", "SET KEY 1 PX 1000", "DEL KEY",
			"HSET KEY field 1", "PEXPIRE KEY 1000", "PTTL KEY", "TYPE KEY", "EXISTS KEY", "HEXISTS KEY field", "HGET KEY field", "HLEN KEY",
			"HGETALL KEY", "HDEL KEY field", "TIME",
			"ZADD PLACES 1 member", "PEXPIRE PLACES 1000", "ZSCORE PLACES member", "ZCARD PLACES", "ZCOUNT PLACES 0 +inf", "ZRANGE PLACES 0 -1",
			"ZRANGEBYSCORE PLACES 0 1", "ZREM PLACES member", "LRANGE QUEUE 0 -1",
		},
		keys:    map[string]string{"KEY": name, "PLACES": "redisson_lock_timeout:" + tagged, "QUEUE": "redisson_lock_queue:" + tagged},
		channel: "redisson_lock__channel:{" + name + "}", subscribes: []string{"subscribe", "unsubscribe"}, patterns: "~* &redisson_*",
	}
	if r.cluster && r.ask(ctx, "PUBSUB", "SHARDNUMSUB").Err == nil {
		n.scripted = append(n.scripted, "SPUBLISH CHANNEL 0")
		n.subscribes = []string{"pubsub|shardnumsub"}
	} else {
		n.scripted = append(n.scripted, "PUBLISH CHANNEL 0")
	}
	switch r.kind { // some kinds of mutexes need more
	case redislock.RedissonFair:
		n.scripted = append(n.scripted, "RPUSH QUEUE member", "PEXPIRE QUEUE 1000", "LPUSH QUEUE member", "LINDEX QUEUE 0", "LLEN QUEUE",
			"LPOS QUEUE member", "LREM QUEUE 1 member", "LPOP QUEUE")
	case redislock.RedissonFenced:
		n.scripted = append(n.scripted, "INCR KEY", "PEXPIRE KEY 1000")
	}
	return n
}
