package doctor

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfastlock/holdfast/redislock"
)

const (
	oldScans = 1000 // how often redisOldRecords asks for keys at most
	oldNamed = 5    // how many keys it names
)

// redisOldRecords looks for locks of versions that kept a name in one hash, which this version refuses
// to use as long as somebody has them or waits for them.
func redisOldRecords(ctx context.Context, r *redisServer) []Finding {
	const check = "old records"
	const risk = "this version takes none of these locks while an older one uses them"
	named, n, cursor := []string(nil), 0, "0"
	for range oldScans {
		reply := r.ask(ctx, "SCAN", cursor, "MATCH", redislock.DefaultPrefix+":{*}", "COUNT", "1000", "TYPE", "hash")
		fields, _ := reply.Value.([]any)
		if reply.Err != nil || len(fields) != 2 {
			return notVisible(check, "which keys it has", risk)
		}
		keys, _ := fields[1].([]any)
		for _, key := range keys {
			key, _ := key.(string)
			// A record with one field has the last token only.
			if size, _ := r.ask(ctx, "EVAL", "return #redis.call('HGETALL', KEYS[1])", "1", key).Value.(int64); size <= 2 {
				continue
			}
			if n++; n <= oldNamed {
				named = append(named, strconv.Quote(key))
			}
		}
		if cursor, _ = fields[0].(string); cursor == "0" || cursor == "" {
			break
		}
	}
	if n == 0 {
		return good(check, "no lock is kept in the form of an older version")
	}
	if n > oldNamed {
		named = append(named, fmt.Sprintf("and %d more", n-oldNamed))
	}
	return []Finding{{
		Check: check, Severity: Warning,
		Found: fmt.Sprintf("older versions of Holdfast use the keys %s", strings.Join(named, ", ")),
		Risk:  risk,
		Remedy: "end the programs of the older version that use these names; when their holds have ended, the keys are taken over or " +
			"end by themselves within half an hour",
	}}
}
