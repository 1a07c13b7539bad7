//go:build soak

package demo

import (
	"testing"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
	_ "github.com/holdfastlock/holdfast/redislock" // redis://
)

// TestCron: with its locks in a server the job runs more than once at some ticks with a plain lock, and once at each
// with a minimum hold.
func TestCron(t *testing.T) {
	ownTempDir(t)
	results, _ := demonstrated[CronResult](t, Cron, "redis://"+testserver.StartRedis(t, testserver.RedisOptions{}).Addr, 6)
	for i, name := range []string{"plain", "min-hold"} {
		r := results[i]
		if r.Strategy != name || r.Ticks != 6 || r.Once+r.Twice != 6 || r.Missed != 0 || (r.Twice == 0) != (name == "min-hold") {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
