//go:build soak

package redislock

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

func as(owner string, req driver.Request) driver.Request {
	req.Owner = owner
	return req
}

// TestRedissonGuarantees: what the guarantees say that programs in Java can break is so, and what they do not say is not.
func TestRedissonGuarantees(t *testing.T) {
	r := newRedissonTest(t)
	said := r.Caps().Guarantees.Summary
	for _, want := range []string{"by their hosts' for those in Java", "lockWatchdogTimeout is below 30 s"} {
		if !strings.Contains(said, want) {
			t.Errorf("the guarantees do not say %q", want)
		}
	}

	for _, deployment := range []deployment{oneServer, withSentinels, clustered} {
		for fault, v := range redissonGuarantees(guaranteesOf(deployment), RedissonLock).Faults {
			if strings.Contains(v.Note, "token") || v.Tokens != driver.Impossible {
				t.Errorf("there are no tokens, and of %q in a deployment %v it is said: %+v", fault, deployment, v)
			}
		}
	}

	// A reader in Java renews: that sets the hash to its watchdog. Then it dies.
	g := r.takes(reader(time.Minute), longestTrust)
	renewal := func(watchdog string) { r.all("HSET n "+java+" 1", "PEXPIRE n "+watchdog) }
	renewal("30000")
	r.lasts("n", longestTrust) // as long as ours is trusted
	r.renews(g, longestTrust, nil)
	renewal("100")
	time.Sleep(150 * time.Millisecond)
	intruder := r.takes(as("a writer", writing(time.Minute)), longestTrust)
	r.renews(g, 0, driver.ErrNotHeld) // told at its next renewal
	r.releases(intruder, nil)
}
