//go:build soak

package faulttest

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// rights are those of the page docs/stores/redis.md for one server; a deployment needs a few more.
const rights = "~holdfast:* &holdfast:* +ping +info +select +eval +evalsha +subscribe +publish +pubsub|numsub " +
	"+time +scan +get +set +zadd +zrem +zrange +zrank +zscore +zcard +hset +hget +hdel +pexpire "

// grant gives a user rights on all servers.
func grant(t *testing.T, servers []*testserver.Redis, more string) {
	t.Helper()
	for _, r := range servers {
		args := append([]string{"ACL", "SETUSER", "app", "on", ">s3cret"}, strings.Fields(rights+more)...)
		if got := r.Ask(args...); got != "OK" {
			t.Fatal(got)
		}
	}
}

// TestRights: in a cluster and with sentinels the rights that the page names are enough, also while a slot
// is moved and after a fail-over.
func TestRights(t *testing.T) {
	t.Parallel()
	t.Run("cluster", func(t *testing.T) {
		c := testserver.StartCluster(t, testserver.ClusterOptions{})
		grant(t, c.Servers, "+cluster|slots +asking")
		uses(t, "redis+cluster://app:s3cret@"+c.Addrs())
	})
	t.Run("sentinel", func(t *testing.T) {
		s := testserver.StartSentinels(t, testserver.SentinelOptions{Replicas: 1})
		grant(t, s.Servers, "+role")
		raw := "redis+sentinel://app:s3cret@" + s.Addrs() + "/" + testserver.PrimaryName + "?" + remembers
		uses(t, raw)
		before := s.Primary()
		s.Failover()
		s.AwaitPrimary(before)
		uses(t, raw)
	})
}

// uses does what locks do, as a user.
func uses(t *testing.T, raw string) {
	t.Helper()
	a, b := openURL(t, raw), openURL(t, raw)
	for _, name := range []string{"one", "two", "three", "four"} {
		lease := acquire(t, a, name, nil)
		got := make(chan error, 1)
		go func() {
			next, err := b.RWMutex(name, nil).Read.Acquire(t.Context())
			if err == nil {
				err = next.Release()
			}
			got <- err
		}()
		until(t, "b waits", func() bool {
			info, err := a.Inspect(t.Context(), name)
			return err == nil && len(info.Waiters) == 1
		})
		must(t, errors.Join(lease.Renew(t.Context()), lease.Release(), <-got))
	}
	held := acquire(t, a, "listed", nil)
	for info, err := range b.List(t.Context(), "") {
		if must(t, err); info.Name != "listed" {
			t.Errorf("the list has %q", info.Name)
		}
	}
	must(t, b.Break(t.Context(), "listed", held.Token()))
	<-held.Done()
	held.Release()
}
