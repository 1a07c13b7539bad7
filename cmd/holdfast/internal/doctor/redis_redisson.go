package doctor

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/holdfastlock/holdfast/redislock"
)

// redissonName is the name in a key of the doctor's own: the layout redisson has locks under their bare names.
func redissonName(scratch string) string {
	_, rest, _ := strings.Cut(scratch, "{")
	name, _, _ := strings.Cut(rest, "}")
	return name
}

// redissonChannel is the channel of a lock of Redisson's.
func redissonChannel(name string) string { return "redisson_lock__channel:{" + name + "}" }

// redissonKeys returns keys of a name in the layout redisson: the lock, the places of a fair lock, and its queue.
func redissonKeys(name string) []string {
	tagged := name
	if !strings.Contains(name, "{") {
		tagged = "{" + name + "}"
	}
	return []string{name, "redisson_lock_timeout:" + tagged, "redisson_lock_queue:" + tagged}
}

// inRedisson is a command that the driver runs from its scripts, in the layout redisson.
func inRedisson(command string, on int, args ...string) attempt {
	return attempt{command, true, func(name, _ string) []string {
		return append([]string{strings.ToUpper(command), redissonKeys(name)[on]}, args...)
	}}
}

// neededByRedisson are the commands that package redislock runs in the layout redisson. Tests compare them with
// the commands that a server has received.
var neededByRedisson = []attempt{
	{"eval", false, func(name, _ string) []string { return []string{"EVAL", "return 1", "1", name} }},
	{"evalsha", false, func(name, _ string) []string { return []string{"EVALSHA", strings.Repeat("0", 40), "1", name} }},
	{"scan", false, func(name, _ string) []string { return []string{"SCAN", "0", "MATCH", name, "COUNT", "1"} }},
	{"set", false, func(name, _ string) []string { return []string{"SET", name, "1", "PX", "1000"} }},
	{"get", false, func(name, _ string) []string { return []string{"GET", name} }},
	inRedisson("incrby", 0, "1"), inRedisson("decrby", 0, "1"), inRedisson("strlen", 0), inRedisson("get", 0), inRedisson("del", 0),
	inRedisson("set", 0, "1", "PX", "1000"), inRedisson("del", 0),
	inRedisson("hset", 0, "field", "1"), inRedisson("pexpire", 0, "1000"), inRedisson("pttl", 0), inRedisson("type", 0),
	inRedisson("exists", 0), inRedisson("hexists", 0, "field"), inRedisson("hget", 0, "field"), inRedisson("hlen", 0),
	inRedisson("hgetall", 0), inRedisson("hdel", 0, "field"), {"time", true, func(string, string) []string { return []string{"TIME"} }},
	inRedisson("zadd", 1, "1", "member"), inRedisson("pexpire", 1, "1000"), inRedisson("zscore", 1, "member"),
	inRedisson("zcard", 1), inRedisson("zcount", 1, "0", "+inf"), inRedisson("zrange", 1, "0", "-1"),
	inRedisson("zrangebyscore", 1, "0", "1"), inRedisson("zrem", 1, "member"), inRedisson("lrange", 2, "0", "-1"),
}

// The kinds of mutexes need more.
var (
	neededByFair = []attempt{
		inRedisson("rpush", 2, "member"), inRedisson("pexpire", 2, "1000"), inRedisson("lpush", 2, "member"),
		inRedisson("lindex", 2, "0"), inRedisson("llen", 2),
		inRedisson("lpos", 2, "member"), inRedisson("lrem", 2, "1", "member"), inRedisson("lpop", 2),
	}
	neededByFenced = []attempt{inRedisson("incr", 0), inRedisson("pexpire", 0, "1000")}
)

// needsOfRedisson are those of the layout redisson.
func (r *redisServer) needsOfRedisson(ctx context.Context) needs {
	name := redissonName(r.scratch)
	n := needs{
		attempts: neededByRedisson, key: name, keys: redissonKeys(name), patterns: "~* &redisson_*",
		channel: redissonChannel(name), subscribes: []string{"subscribe", "unsubscribe"},
	}
	publish := "publish"
	if r.cluster && r.ask(ctx, "PUBSUB", "SHARDNUMSUB").Err == nil {
		publish, n.subscribes = "spublish", []string{"ssubscribe", "sunsubscribe", "pubsub|shardnumsub"}
	}
	n.attempts = append(n.attempts[:len(n.attempts):len(n.attempts)], attempt{publish, true, func(_, channel string) []string {
		return []string{strings.ToUpper(publish), channel, "0"}
	}})
	switch r.redisson {
	case redislock.RedissonFair:
		n.attempts = append(n.attempts, neededByFair...)
	case redislock.RedissonFenced:
		n.attempts = append(n.attempts, neededByFenced...)
	}
	return n
}

// shardsOfRedisson subscribes to a channel of each master, as waiters do, and publishes on it.
func shardsOfRedisson(ctx context.Context, conn redislock.Conn, prefix string, masters []string) []Finding {
	const check = "channels"
	ctx, cancel := context.WithTimeout(ctx, messageWithin)
	defer cancel()
	without := make([]string, len(masters))
	var asked sync.WaitGroup
	for i, address := range masters {
		asked.Go(func() {
			name := redissonName(keyAt(conn.(redislock.Partitioned), prefix, address))
			heard := make(chan struct{}, 1)
			stop, err := conn.(redislock.ShardSubscriber).SubscribeShard(ctx, redissonChannel(name), func(string) {
				select {
				case heard <- struct{}{}:
				default:
				}
			})
			if err != nil {
				without[i] = address
				return
			}
			defer stop()
			publish := []string{"EVAL", callScript, "1", name, "SPUBLISH", redissonChannel(name), "0"}
			conn.Do(ctx, []redislock.Command{{Args: publish, Key: name}})
			select {
			case <-heard:
			case <-ctx.Done():
				without[i] = address
			}
		})
	}
	asked.Wait()
	without = slices.DeleteFunc(without, func(address string) bool { return address == "" })
	if len(without) == 0 {
		return good(check, "waiters hear of releases on %d masters", len(masters))
	}
	return []Finding{{
		Check: check, Severity: Note,
		Found:  "no sharded channels on " + strings.Join(without, ", "),
		Risk:   "waiters are not told when a lock is released there: they poll, each 50 to 100 ms in the end, and those in Java wait until the lock's TTL is over",
		Remedy: "use Redis 7 or Valkey, and allow the user +ssubscribe +spublish and the channels redisson_*",
	}}
}
