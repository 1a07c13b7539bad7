package doctor

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfastlock/holdfast/redislock"
)

// isEndless is a script that tells whether a hash is a lock of Redisson's that has no end.
const isEndless = `if redis.call('PTTL', KEYS[1]) ~= -1 or redis.call('HLEN', KEYS[1]) > 1000 then return 0 end
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.match(field, '^%x+%-%x+%-%x+%-%x+%-%x+:%d+') then return 1 end
end
return 0`

// manyCounters is how many counters of tokens a server may have without a finding.
const manyCounters = 100_000

// redissonData looks for what clients of Redisson's leave behind: locks without an end, which nobody gets any more
// once their holder has died, and counters of tokens, of which each name has one that was ever locked.
func redissonData(ctx context.Context, r *redisServer) []Finding {
	const check = "data of Redisson"
	if r.layout != redislock.Redisson || !r.master() {
		return nil
	}
	var endless []string
	counters := 0
	seen := r.eachKey(ctx, func(key string) {
		if n, _ := r.ask(ctx, "EVAL", isEndless, "1", key).Value.(int64); n == 1 {
			endless = append(endless, strconv.Quote(key))
		}
	}, "TYPE", "hash") && r.eachKey(ctx, func(string) { counters++ }, "MATCH", "redisson_lock_token:*")
	switch {
	case !seen:
		return notVisible(check, "which keys it has", "locks without an end are never free again once their holder has died")
	case len(endless) > 0:
		return []Finding{{
			Check: check, Severity: Warning,
			Found:  "locks without an end: " + strings.Join(few(endless), ", "),
			Risk:   "when the holder dies nobody gets such a lock any more; Redisson makes none, so somebody has changed it",
			Remedy: "see by holdfast show who has it; if that program runs no more, end the hold by holdfast break",
		}}
	}
	return []Finding{judgeCounters(counters)}
}

// judgeCounters judges how many counters of tokens there are.
func judgeCounters(n int) Finding {
	f := Finding{Check: "data of Redisson", Severity: OK, Found: fmt.Sprintf("all locks end; %d names have a counter of tokens", n)}
	if n > manyCounters {
		f.Severity = Note
		f.Risk = "a counter has no end: each name that was ever locked as an RFencedLock takes memory for ever"
		f.Remedy = "use fewer names, or locks without tokens; a counter may be deleted when no guard remembers its tokens"
	}
	return f
}
