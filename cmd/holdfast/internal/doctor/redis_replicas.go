package doctor

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// redisReplicas checks what would be lost by a fail-over, and whether the server has the replicas that are
// asked for.
func redisReplicas(_ context.Context, r *redisServer) []Finding {
	const check = "replicas"
	switch {
	case !r.master():
		return nil // redisPlace reports why
	case r.info["role"] == "":
		return notVisible(check, "its replicas", "a replica that takes over may not know the locks that are held")
	}
	least, err := strconv.Atoi(r.conf["min-replicas-to-write"])
	if err != nil {
		least = -1 // not seen
	}
	return []Finding{judgeFollowers(r.followers(), r.replicas, least)}
}

// followers counts the replicas that have all data and follow.
func (r *redisServer) followers() int {
	n := 0
	for i := range r.number("connected_slaves") {
		if strings.Contains(r.info["slave"+strconv.FormatInt(i, 10)], "state=online") {
			n++
		}
	}
	return n
}

// judgeFollowers judges how many replicas follow, how many must acknowledge a lock (hf.replicas), and
// min-replicas-to-write, which is negative if it cannot be seen.
func judgeFollowers(follow, asked, least int) Finding {
	f := Finding{Check: "replicas", Severity: Error}
	following := fmt.Sprintf("replicas: %d", follow)
	if least >= 0 {
		following += fmt.Sprintf("; min-replicas-to-write is %d", least)
	}
	switch {
	case least > follow:
		f.Found = following
		f.Risk = "the server refuses all writes: no lock can be taken, renewed or released"
		f.Remedy = "connect more replicas, or lower min-replicas-to-write"
	case asked > follow:
		f.Found = fmt.Sprintf("%s; hf.replicas is %d", following, asked)
		f.Risk = "too few can acknowledge a lock: none can be taken or renewed"
		f.Remedy = "connect more replicas, or lower hf.replicas"
	case asked > 0 && asked == follow:
		f.Severity = OK
		f.Found = fmt.Sprintf("%s; each of them must acknowledge a lock (hf.replicas is %d), so any may take over; "+
			"while one is down, or when one has taken over, none can be taken until as many follow again", following, asked)
	case asked > 0:
		f.Severity = Warning
		f.Found = fmt.Sprintf("%s; hf.replicas is %d: the others need not have acknowledged a lock", following, asked)
		f.Risk = "if one of the others takes over, locks of the last moments before are forgotten and can be taken a second time"
		f.Remedy = fmt.Sprintf("let only the most advanced replica take over; or ask for %d by hf.replicas, and "+
			"then no lock can be taken while one is down; or guard what must not break by fencing tokens", follow)
	case follow == 0:
		f.Severity, f.Found = OK, "no replica follows, so none can take over with old data"
	default:
		f.Severity, f.Found = Warning, following+", and locks do not wait until they have them"
		f.Risk = "if a replica takes over, locks of the last moments before are forgotten and can " +
			"be taken a second time; if its clock is behind, tokens are lower than before"
		f.Remedy = "ask by hf.replicas in the store URL for as many replicas as there are; " +
			"or guard what must not break by fencing tokens; or let no replica take over by itself"
	}
	return f
}
