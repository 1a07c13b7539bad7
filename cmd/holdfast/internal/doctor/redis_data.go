package doctor

import (
	"context"
	"fmt"
	"strings"
)

// redisEviction checks that the server does not delete locks to make room.
func redisEviction(_ context.Context, r *redisServer) []Finding {
	const check = "eviction"
	policy, ok := r.setting("maxmemory_policy", "maxmemory-policy")
	limit, limited := r.setting("maxmemory", "maxmemory")
	if !ok || !limited {
		return notVisible(check, "maxmemory-policy", "with any policy but noeviction, held locks "+
			"are deleted when memory is short")
	}
	f := Finding{Check: check, Severity: Warning, Found: "maxmemory-policy is " + policy}
	switch {
	case policy != "noeviction" && limit == "0":
		f.Severity, f.Found = Note, f.Found+", but maxmemory is not set, so nothing is evicted"
		f.Risk = "once maxmemory is set, held locks may be deleted"
	case policy != "noeviction":
		f.Severity = Error
		f.Found = fmt.Sprintf("%s, and maxmemory is set; keys evicted so far: %d", f.Found, r.number("evicted_keys"))
		f.Risk = "when memory is short the server deletes locks that are held, and others take them"
	case limit != "0" && r.number("used_memory") > r.number("maxmemory")/10*9:
		if r.number("used_memory") > r.number("maxmemory") {
			f.Severity = Error
		}
		f.Found = fmt.Sprintf("of maxmemory, %s bytes, %s are used", limit, r.info["used_memory"])
		f.Risk = "when it is full locks cannot be taken any more, and waiters fail"
		f.Remedy = "give it more memory, or put the other data elsewhere"
		return []Finding{f}
	default:
		return good(check, "nothing is evicted: maxmemory-policy is noeviction")
	}
	f.Remedy = "set maxmemory-policy noeviction; use a server of its own for locks if the other data are a cache"
	return []Finding{f}
}

// redisPersistence checks what is lost by a restart, and whether writes to disk work.
func redisPersistence(_ context.Context, r *redisServer) []Finding {
	const check = "persistence"
	aof, ok := r.setting("aof_enabled", "appendonly")
	if !ok {
		return notVisible(check, "its persistence", "after a restart, locks that are held may be "+
			"forgotten and taken a second time")
	}
	save, saves := r.conf["save"]
	fsync, syncs := r.conf["appendfsync"]
	return append(brokenDisk(r), judgePersistence(aof == "1" || aof == "yes", known(fsync, syncs), known(save, saves)))
}

func known(value string, ok bool) string {
	if !ok {
		return "unknown"
	}
	return value
}

func judgePersistence(aof bool, fsync, save string) Finding {
	f := Finding{
		Check: "persistence", Severity: Warning,
		Remedy: "set appendonly yes and appendfsync always, at the price of a slower server; or " +
			"guard what must not break by fencing tokens",
	}
	const again = "and the next client takes them a second time"
	switch {
	case aof && fsync == "always":
		return Finding{Check: f.Check, Severity: OK, Found: "each write is on disk before it is " +
			"answered (appendonly yes, appendfsync always)"}
	case aof && fsync == "unknown":
		f.Severity, f.Found = Note, "writes are appended to a file; not seen how often it is "+
			"synced, because CONFIG GET is not allowed"
		f.Risk = "unless appendfsync is always, a crash of the host forgets locks of the last moments, " + again
	case aof:
		f.Found = "writes are appended to a file that is synced later (appendfsync " + fsync + ")"
		f.Risk = "a crash of the host forgets locks of the last moments, " + again
		if fsync == "everysec" {
			f.Risk = "a crash of the host forgets locks of the last second or two, " + again
		}
	case save == "unknown":
		f.Severity, f.Found = Note, "writes are not appended to a file; not seen whether there "+
			"are snapshots, because CONFIG GET is not allowed"
		f.Risk = "a restart forgets locks, all or those since the last snapshot, " + again
	case save == "":
		f.Found = "nothing is written to disk"
		f.Risk = "a restart forgets all locks that are held, " + again
	default:
		f.Found = "there are only snapshots (save " + save + ")"
		f.Risk = "a crash forgets locks taken since the last one, which may be hours old, " + again
	}
	return f
}

// brokenDisk finds failed writes to disk: after one the server refuses all writes.
func brokenDisk(r *redisServer) []Finding {
	for field, what := range map[string]string{
		"rdb_last_bgsave_status": "the last snapshot", "aof_last_write_status": "the last write " +
			"to the append-only file",
	} {
		if status := r.info[field]; status == "" || status == "ok" || field == "rdb_last_bgsave_status" && r.conf["stop-writes-on-bgsave-error"] == "no" {
			continue
		}
		return []Finding{{
			Check: "disk", Severity: Error, Found: what + " failed",
			Risk:   "the server refuses writes until one succeeds: no lock can be taken, renewed or given back",
			Remedy: "see the server's log; check free space, and the permissions of its directory",
		}}
	}
	return nil
}

// pubsubLimits reads the limits for subscribers, in bytes, of the parameter
// client-output-buffer-limit.
func pubsubLimits(text string) (hard, soft int64, ok bool) {
	_, rest, found := strings.Cut(text, "pubsub ")
	n, _ := fmt.Sscan(rest, &hard, &soft)
	return hard, soft, found && n == 2
}
