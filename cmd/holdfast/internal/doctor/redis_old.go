package doctor

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfastlock/holdfast/redislock"
)

const (
	mostScans = 1000 // how often eachKey asks for keys at most
	mostNamed = 5    // how many keys a finding names
)

// few returns the first names of a list, and how many more there are.
func few(names []string) []string {
	if len(names) <= mostNamed {
		return names
	}
	return append(names[:mostNamed:mostNamed], fmt.Sprintf("and %d more", len(names)-mostNamed))
}

// eachKey visits the keys of the server, up to a million, that SCAN finds with these arguments. It returns false if
// the server does not show them.
func (r *redisServer) eachKey(ctx context.Context, visit func(key string), args ...string) bool {
	for i, cursor := 0, "0"; i == 0 || i < mostScans && cursor != "0" && cursor != ""; i++ {
		reply := r.ask(ctx, append([]string{"SCAN", cursor, "COUNT", "1000"}, args...)...)
		fields, _ := reply.Value.([]any)
		if reply.Err != nil || len(fields) != 2 {
			return false
		}
		keys, _ := fields[1].([]any)
		for _, key := range keys {
			if key, ok := key.(string); ok {
				visit(key)
			}
		}
		cursor, _ = fields[0].(string)
	}
	return true
}

// redisOldRecords looks for locks of versions that kept a name in one hash, which this version refuses
// to use as long as somebody has them or waits for them.
func redisOldRecords(ctx context.Context, r *redisServer) []Finding {
	const check = "old records"
	const risk = "this version takes none of these locks while an older one uses them"
	var named []string
	if !r.eachKey(ctx, func(key string) {
		// A record with one field has the last token only.
		if size, _ := r.ask(ctx, "EVAL", "return #redis.call('HGETALL', KEYS[1])", "1", key).Value.(int64); size > 2 {
			named = append(named, strconv.Quote(key))
		}
	}, "MATCH", redislock.DefaultPrefix+":{*}", "TYPE", "hash") {
		return notVisible(check, "which keys it has", risk)
	}
	if named == nil {
		return good(check, "no lock is kept in the form of an older version")
	}
	return []Finding{{
		Check: check, Severity: Warning,
		Found: fmt.Sprintf("older versions of Holdfast use the keys %s", strings.Join(few(named), ", ")),
		Risk:  risk,
		Remedy: "end the programs of the older version that use these names; when their holds have ended, the keys are taken over or " +
			"end by themselves within half an hour",
	}}
}
