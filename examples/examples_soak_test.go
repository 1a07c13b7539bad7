//go:build soak

package examples

import (
	"os"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/fence"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestWithServers runs the examples that need servers.
func TestWithServers(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"flashsale": func(t *testing.T) {
			postgres, redis := testserver.StartPostgres(t), testserver.StartRedis(t, testserver.RedisOptions{})
			servers := "HOLDFAST_STORE=redis://" + redis.Addr + " DATABASE_URL=" + postgres.URL("postgres")
			p := start(t, servers, "flashsale")
			for _, line := range []string{"sells one of 3", "sells one of 2", "sells one of 1", "all buyers have been answered"} {
				p.says(line)
			}
			if said := p.ends(); strings.Count(said, "sells") != 3 {
				t.Errorf("flashsale says\n%s", said)
			}
			// After a holder with the highest of tokens nobody sells.
			postgres.Query("UPDATE holdfast_fence SET exclusive_mark = 9007199254740991")
			start(t, servers, "flashsale").says(fence.ErrStale.Error())
		},
		"tx": func(t *testing.T) {
			p := start(t, "DATABASE_URL="+testserver.StartPostgres(t).URL("postgres"), "tx")
			p.says("together have 200")
			p.ends()
		},
		"goandjava": func(t *testing.T) {
			jars := testserver.NeedPeers(t) + "/java/redisson-4.7.0/*"
			redis, file := "redis://"+testserver.StartRedis(t, testserver.RedisOptions{}).Addr, t.TempDir()+"/counter"
			java := start(t, "", "java", "-cp", jars, "goandjava/Counter.java", redis, file, "500")
			java.says("Java begins")
			both := start(t, "REDIS_URL="+redis, "goandjava", "-file", file, "-times", "500")
			both.says("Go has added 500")
			java.says("Java has added 500")
			if n, err := os.ReadFile(file); string(n) != "1000" {
				t.Errorf("the number is %q, %v", n, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}
