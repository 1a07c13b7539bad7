package doctor

import (
	"context"
	"strings"

	"github.com/holdfastlock/holdfast/redislock"
)

// redisKeyspace checks, for the layout SetNX, that the server tells when keys are deleted or expire.
func redisKeyspace(_ context.Context, r *redisServer) []Finding {
	const (
		check = "keyspace notifications"
		polls = "waiters poll, each 50 to 100 ms in the end, and get a lock that late"
	)
	if r.layout != redislock.SetNX {
		return nil
	}
	flags, ok := r.conf[redislock.KeyspaceParameter]
	if !ok {
		findings := notVisible(check, "the parameter "+redislock.KeyspaceParameter, polls)
		findings[0].Remedy = "let this user run CONFIG GET (+config|get)"
		return findings
	}
	if redislock.TellsOfKeys(flags) {
		return good(check, "waiters are told when a lock is released (%s %s)", redislock.KeyspaceParameter, flags)
	}
	found := "they are off"
	if flags != "" {
		found = "they are " + flags
	}
	return []Finding{{
		Check: check, Severity: Note,
		Found:  found + ", so waiters are not told when a lock is released",
		Risk:   polls,
		Remedy: "CONFIG SET " + redislock.KeyspaceParameter + " " + missingFlags(flags) + ", and the same in redis.conf; it costs the server a little for each command that deletes a key",
	}}
}

// missingFlags returns the flags with those that are missing.
func missingFlags(flags string) string {
	for _, one := range []string{"K", "g", "x"} {
		if !strings.Contains(flags, one) && (one == "K" || !strings.Contains(flags, "A")) {
			flags += one
		}
	}
	return flags
}
