//go:build soak

package testserver

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// dialRedis returns a function that sends one command and returns the first line
// of the reply, and for a bulk string its second.
func dialRedis(t *testing.T, network, address string) func(string) (string, error) {
	t.Helper()
	conn, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	in := bufio.NewReader(conn)
	return func(command string) (string, error) {
		conn.SetDeadline(time.Now().Add(200 * time.Millisecond))
		if _, err := io.WriteString(conn, command+"\r\n"); err != nil {
			return "", err
		}
		line, err := in.ReadString('\n')
		if strings.HasPrefix(line, "$") && line != "$-1\r\n" {
			line, err = in.ReadString('\n')
		}
		return strings.TrimSpace(line), err
	}
}

func TestRedisRestarts(t *testing.T) {
	for _, aof := range []bool{false, true} {
		r := StartRedis(t, RedisOptions{AOF: aof})
		if got, err := dialRedis(t, "unix", r.Socket)("SET key value"); got != "+OK" {
			t.Fatalf("SET: %q, %v", got, err)
		}
		r.Kill()
		if c, err := net.Dial("tcp", r.Addr); err == nil {
			c.Close()
			t.Error("a killed server serves")
		}
		r.Start()
		want := "$-1"
		if aof {
			want = "value"
		}
		if got, err := dialRedis(t, "tcp", r.Addr)("GET key"); got != want {
			t.Errorf("with AOF %v a restarted server has %q, %v; want %q", aof, got, err, want)
		}
	}
}

func TestRedisPauses(t *testing.T) {
	r := StartRedis(t, RedisOptions{})
	do := dialRedis(t, "tcp", r.Addr)
	if got, err := do("PING"); got != "+PONG" {
		t.Fatalf("PING: %q, %v", got, err)
	}
	r.Pause()
	if got, err := do("PING"); !os.IsTimeout(err) {
		t.Errorf("a paused server answers %q, %v", got, err)
	}
	r.Resume()
	if got, err := dialRedis(t, "tcp", r.Addr)("PING"); got != "+PONG" {
		t.Errorf("a resumed server answers %q, %v", got, err)
	}
	r.Stop()
	if c, err := net.Dial("tcp", r.Addr); err == nil {
		c.Close()
		t.Error("a stopped server serves")
	}
}

func TestRedisClock(t *testing.T) {
	r := StartRedis(t, RedisOptions{Clock: true})
	do := dialRedis(t, "unix", r.Socket)
	for _, ahead := range []time.Duration{0, time.Minute, -time.Minute, 1500 * time.Millisecond, -1500 * time.Millisecond} {
		r.Clock.Set(ahead)
		before := time.Now()
		text, err := do(`EVAL "local t = redis.call('TIME') return t[1] * 1000000 + t[2]" 0`)
		after := time.Now()
		us, _ := strconv.ParseInt(strings.TrimPrefix(text, ":"), 10, 64)
		is := time.UnixMicro(us).Add(-ahead)
		if is.Before(before.Add(-time.Millisecond)) || is.After(after.Add(time.Millisecond)) {
			t.Errorf("set %v ahead, the server's clock says %q (%v): %v ahead", ahead, text, err, time.UnixMicro(us).Sub(before))
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
