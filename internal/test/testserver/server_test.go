//go:build soak

package testserver

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestRedisClock(t *testing.T) {
	r := StartRedis(t, RedisOptions{Clock: true})
	for _, ahead := range []time.Duration{0, time.Minute, -time.Minute, 1500 * time.Millisecond, -1500 * time.Millisecond} {
		r.Clock.Set(ahead)
		before := time.Now()
		text := r.Ask("EVAL", "local t = redis.call('TIME') return t[1] * 1000000 + t[2]", "0")
		after := time.Now()
		us, _ := strconv.ParseInt(text, 10, 64)
		is := time.UnixMicro(us).Add(-ahead)
		if is.Before(before.Add(-time.Millisecond)) || is.After(after.Add(time.Millisecond)) {
			t.Errorf("set %v ahead, the server's clock says %q: %v ahead", ahead, text, time.UnixMicro(us).Sub(before))
		}
	}
}

// TestZooKeeperClock reads the wall clocks of members from their logs, with the other library loaded too.
func TestZooKeeperClock(t *testing.T) {
	z := StartZooKeeper(t, ZooKeeperOptions{Members: 3, TickTime: 100 * time.Millisecond, Clock: true, Between: true})
	m := z.Members[1]
	m.Clock.Set(10 * 366 * 24 * time.Hour)
	for _, other := range z.Members {
		from := len(other.Log())
		other.Ask("srvr")
		year := time.Now().Year()
		if other == m {
			year += 10
		}
		want := fmt.Sprintf("%d-", year)
		await(t, "the log says "+want, func() bool { return strings.HasPrefix(other.Log()[from:], want) })
	}
}

// TestZooKeeperMuteLeader: a leader that takes no clients is found all the same.
func TestZooKeeperMuteLeader(t *testing.T) {
	z := StartZooKeeper(t, ZooKeeperOptions{Members: 3, TickTime: 100 * time.Millisecond, NoLeaderClients: true})
	for range 2 {
		leader := z.Leader()
		if !strings.Contains(leader.Log(), "LEADING") {
			t.Fatalf("the member that should lead says:\n%s", leader.Log())
		}
		leader.Kill()
		if z.NewLeader(leader) == leader {
			t.Fatal("a member that has ended leads")
		}
		leader.Start()
	}
}
