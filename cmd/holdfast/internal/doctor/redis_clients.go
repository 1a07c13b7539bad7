package doctor

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// redisStalls checks the slow log for commands that blocked all others.
func redisStalls(ctx context.Context, r *redisServer) []Finding {
	const check = "stalls"
	entries, ok := r.ask(ctx, "SLOWLOG", "GET", "128").Value.([]any)
	if !ok {
		return notVisible(check, "slow commands", "while one runs no lock can be taken or renewed")
	}
	var longest time.Duration
	command, when := "", time.Time{}
	for _, entry := range entries {
		e, _ := entry.([]any)
		if len(e) < 4 {
			continue
		}
		at, _ := e[1].(int64)
		micros, _ := e[2].(int64)
		args, _ := e[3].([]any)
		if took := time.Duration(micros) * time.Microsecond; took > longest && len(args) > 0 {
			longest, when = took, time.Unix(at, 0)
			command = fmt.Sprint(args[0]) // the rest may be secret
		}
	}
	if longest < slow {
		return good(check, "no command in the slow log took as long as %v", slow)
	}
	return []Finding{{
		Check: check, Severity: Warning,
		Found: fmt.Sprintf("a command %.20s blocked the server for %v, at %s",
			command, longest.Round(time.Millisecond), when.UTC().Format(time.RFC3339)),
		Risk: "while it runs nothing else does: locks with a TTL that is not much longer are lost",
		Remedy: "see SLOWLOG GET; break the command up, use SCAN for KEYS, or give locks a " +
			"server of their own; SLOWLOG RESET when it is fixed",
	}}
}

// redisClients checks that there is room for more connections.
func redisClients(_ context.Context, r *redisServer) []Finding {
	const check = "connections"
	text, ok := r.setting("maxclients", "maxclients")
	limit, err := strconv.ParseInt(text, 10, 64)
	if _, counted := r.info["connected_clients"]; !ok || err != nil || !counted {
		return notVisible(check, "its connections", "at maxclients new clients are refused")
	}
	n := r.number("connected_clients")
	if n*10 <= limit*8 {
		return good(check, "of %d connections that the server takes %d are open", limit, n)
	}
	return []Finding{{
		Check: check, Severity: Warning,
		Found: fmt.Sprintf("of %d connections that the server takes %d are open", limit, n),
		Risk:  "at the limit new clients are refused, and a client that has lost its connection loses its locks",
		Remedy: "raise maxclients, or find out which program opens so many; holdfast needs a few " +
			"for each process, not for each lock",
	}}
}

// redisIdle checks that the server leaves idle connections alone.
func redisIdle(_ context.Context, r *redisServer) []Finding {
	const check = "idle connections"
	text, ok := r.conf["timeout"]
	if !ok {
		return notVisible(check, "the parameter timeout", "a server that closes idle connections "+
			"makes the next request fail once")
	}
	if text == "0" {
		return good(check, "they are left alone (timeout 0)")
	}
	return []Finding{{
		Check: check, Severity: Note, Found: fmt.Sprintf("they are closed after %s s (timeout)", text),
		Risk: "clients that send nothing for so long have the next request fail once; holdfast " +
			"itself keeps its connections busy",
		Remedy: "set timeout 0 and tcp-keepalive 60, unless clients leave connections behind",
	}}
}

// Subscribers with smaller buffers than this are disconnected by a burst of messages.
const (
	leastHard = 1 << 20
	leastSoft = 256 << 10
)

// redisPushBuffer checks that the server does not disconnect subscribers too soon.
func redisPushBuffer(_ context.Context, r *redisServer) []Finding {
	const check = "push buffer"
	text, ok := r.conf["client-output-buffer-limit"]
	hard, soft, read := pubsubLimits(text)
	if !ok || !read {
		return notVisible(check, "client-output-buffer-limit", "subscribers that are "+
			"disconnected too soon learn late that a lock is theirs")
	}
	if (hard == 0 || hard >= leastHard) && (soft == 0 || soft >= leastSoft) {
		return good(check, "subscribers are not disconnected by a burst of messages")
	}
	return []Finding{{
		Check: check, Severity: Warning,
		Found: fmt.Sprintf("subscribers are disconnected when %d bytes, or for a while %d, wait "+
			"to be sent (client-output-buffer-limit pubsub)", hard, soft),
		Risk: "a burst of hand-overs disconnects clients: waiters then learn only by their " +
			"next poll that a lock is theirs",
		Remedy: "set client-output-buffer-limit pubsub 32mb 8mb 60, the default",
	}}
}
