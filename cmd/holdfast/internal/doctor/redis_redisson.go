package doctor

import (
	"context"
	"slices"
	"strconv"
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

// needsOfRedisson are those of the layout redisson.
func (r *redisServer) needsOfRedisson(ctx context.Context) needs {
	name := redissonName(r.scratch)
	tagged := name
	if !strings.Contains(name, "{") {
		tagged = "{" + name + "}"
	}
	n := needs{
		direct: []string{
			"EVAL return(1) 1 KEY", "EVALSHA " + missingScript + " 1 KEY", "SCAN 0 MATCH KEY COUNT 1", "SET KEY 1 PX 1000", "GET KEY",
		},
		scripted: []string{
			"INCRBY KEY 1", "DECRBY KEY 1", "STRLEN KEY", "GET KEY", "DEL KEY", "SET KEY 1 PX 1000", "DEL KEY",
			"HSET KEY field 1", "PEXPIRE KEY 1000", "PTTL KEY", "TYPE KEY", "EXISTS KEY", "HEXISTS KEY field", "HGET KEY field", "HLEN KEY",
			"HGETALL KEY", "HDEL KEY field", "TIME",
			"ZADD PLACES 1 member", "PEXPIRE PLACES 1000", "ZSCORE PLACES member", "ZCARD PLACES", "ZCOUNT PLACES 0 +inf", "ZRANGE PLACES 0 -1",
			"ZRANGEBYSCORE PLACES 0 1", "ZREM PLACES member", "LRANGE QUEUE 0 -1",
		},
		keys:    map[string]string{"KEY": name, "PLACES": "redisson_lock_timeout:" + tagged, "QUEUE": "redisson_lock_queue:" + tagged},
		channel: redissonChannel(name), subscribes: []string{"subscribe", "unsubscribe"}, patterns: "~* &redisson_*",
	}
	if r.cluster && r.ask(ctx, "PUBSUB", "SHARDNUMSUB").Err == nil {
		n.scripted = append(n.scripted, "SPUBLISH CHANNEL 0")
		n.subscribes = []string{"ssubscribe", "sunsubscribe", "pubsub|shardnumsub"}
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

// redissonShards subscribes to a channel of each master, as waiters do, and publishes on it.
func redissonShards(ctx context.Context, parts redislock.Clustered, prefix string, masters []string) []Finding {
	ctx, cancel := context.WithTimeout(ctx, messageWithin)
	defer cancel()
	without := make([]string, len(masters))
	var asked sync.WaitGroup
	for i, address := range masters {
		asked.Go(func() {
			name := redissonName(keyAt(parts, prefix, address))
			heard := make(chan struct{}, 1)
			stop, err := parts.SubscribeShard(ctx, redissonChannel(name), func(string) {
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
			parts.Do(ctx, []redislock.Command{{Args: publish, Key: name}})
			select {
			case <-heard:
			case <-ctx.Done():
				without[i] = address
			}
		})
	}
	asked.Wait()
	without = slices.DeleteFunc(without, func(address string) bool { return address == "" })
	return judge(facts{"without": strings.Join(without, ", "), "masters": strconv.Itoa(len(masters))}, []rule{
		{
			"channels", Note, has("without"), "no sharded channels on ${without}",
			"waiters are not told when a lock is released there: they poll, each 50 to 100 ms in the end, and those in Java wait until the lock's TTL is over",
			"use Redis 7 or Valkey, and allow the user +ssubscribe +spublish and the channels redisson_*",
		},
		good("channels", "waiters hear of releases on ${masters} masters"),
	}...)
}

// isEndless is a script that tells whether a hash is a lock of Redisson's that has no end.
const isEndless = `if redis.call('PTTL', KEYS[1]) ~= -1 or redis.call('HLEN', KEYS[1]) > 1000 then return 0 end
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.match(field, '^%x+%-%x+%-%x+%-%x+%-%x+:%d+') then return 1 end
end
return 0`

const (
	mostScans = 1000 // how often redissonData asks for keys at most
	mostNamed = 5    // how many keys a finding names
)

// redissonData looks for locks without an end, which nobody gets any more once their holder has died. It visits up
// to a million keys.
func redissonData(ctx context.Context, r *redisServer) []Finding {
	f := facts{"seen": "yes"}
	var endless []string
	for i, cursor := 0, "0"; i == 0 || i < mostScans && cursor != "0" && cursor != ""; i++ {
		reply := r.ask(ctx, "SCAN", cursor, "COUNT", "1000", "TYPE", "hash")
		fields, _ := reply.Value.([]any)
		if reply.Err != nil || len(fields) != 2 {
			delete(f, "seen")
			break
		}
		keys, _ := fields[1].([]any)
		for _, key := range keys {
			name, _ := key.(string)
			if n, _ := r.ask(ctx, "EVAL", isEndless, "1", name).Value.(int64); n == 1 {
				endless = append(endless, strconv.Quote(name))
			}
		}
		cursor, _ = fields[0].(string)
	}
	if more := len(endless) - mostNamed; more > 0 {
		endless = append(endless[:mostNamed], "and "+strconv.Itoa(more)+" more")
	}
	f.set("endless", strings.Join(endless, ", "))
	return judge(f, []rule{
		unseen("data of Redisson", "which keys it has", "locks without an end are never free again once their holder has died", "seen"),
		{
			"data of Redisson", Warning, has("endless"), "locks without an end: ${endless}",
			"when the holder dies nobody gets such a lock any more; Redisson makes none, so somebody has changed it",
			"see by holdfast show who has it; if that program runs no more, end the hold by holdfast break",
		},
		good("data of Redisson", "all locks end"),
	}...)
}
