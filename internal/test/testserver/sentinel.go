package testserver

import (
	"cmp"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// PrimaryName is the name by which the sentinels of [StartSentinels] know the primary.
const PrimaryName = "locks"

// SentinelOptions configure a deployment with Redis Sentinel.
type SentinelOptions struct {
	Replicas int    // 0: two
	Password string // of the servers and of the sentinels
}

// Sentinels is a primary with replicas and three sentinels.
type Sentinels struct {
	Servers   []*Redis // the first is the primary at the beginning
	Sentinels []*Redis
	t         testing.TB
}

// StartSentinels starts a deployment, which ends with the test. The sentinels promote a replica about a
// second after the primary has fallen silent. It needs the package redis-server: see [Need].
func StartSentinels(t testing.TB, o SentinelOptions) *Sentinels {
	t.Helper()
	servers := RedisOptions{Args: []string{"--repl-diskless-sync-delay", "0"}}
	if o.Password != "" {
		servers.Args = append(servers.Args, "--requirepass", o.Password, "--masterauth", o.Password)
	}
	primary := StartRedis(t, servers)
	return WatchBySentinels(t, primary, StartRedisReplicas(t, primary, cmp.Or(o.Replicas, 2), servers))
}

// WatchBySentinels is StartSentinels for servers that have been started, with more lines of the
// sentinels' configuration. It returns when all sentinels know each other and the replicas follow.
func WatchBySentinels(t testing.TB, primary *Redis, replicas []*Redis, lines ...string) *Sentinels {
	t.Helper()
	s := &Sentinels{t: t, Servers: append([]*Redis{primary}, replicas...)}
	for range 3 {
		s.Sentinels = append(s.Sentinels, startSentinel(t, primary, lines))
	}
	await(t, "each sentinel knows all replicas and sentinels", func() bool {
		for _, r := range s.Sentinels {
			state := r.Ask("SENTINEL", "MASTER", PrimaryName)
			if !strings.Contains(state, fmt.Sprintf(" num-slaves %d ", len(replicas))) || !strings.Contains(state, " num-other-sentinels 2 ") {
				return false
			}
		}
		return true
	})
	for _, r := range replicas {
		r.awaitInStep()
	}
	return s
}

// startSentinel starts one sentinel, with the password of the primary.
func startSentinel(t testing.TB, primary *Redis, lines []string) *Redis {
	t.Helper()
	program := Need(t, "redis-server", "redis-server")
	dir := shortDir(t, "")
	r := &Redis{process: &process{t: t, ready: "+monitor"}}
	var args []string
	if i := slices.Index(primary.args, "--requirepass"); i >= 0 {
		args = primary.args[i : i+2]
		lines = append(lines, "sentinel auth-pass "+PrimaryName+" "+args[1])
	}
	r.serve(func(port string) []string {
		return append([]string{program, writeLines(t, filepath.Join(dir, "sentinel.conf"), append([]string{
			"bind 127.0.0.1", "port " + port, "dir " + dir,
			"sentinel monitor " + PrimaryName + " 127.0.0.1 " + portOf(primary.Addr) + " 2",
			"sentinel down-after-milliseconds " + PrimaryName + " 500",
			"sentinel failover-timeout " + PrimaryName + " 5000",
			"sentinel parallel-syncs " + PrimaryName + " 2",
		}, lines...)...), "--sentinel"}, args...)
	})
	r.Addr = r.process.Addr
	return r
}

// Addrs returns the addresses of the sentinels, separated by commas, as a store URL has them.
func (s *Sentinels) Addrs() string {
	return addrs(s.Sentinels, func(r *Redis) string { return r.Addr })
}

// Primary returns the server that a majority of the sentinels name as the primary, or nil if there is
// none.
func (s *Sentinels) Primary() *Redis {
	named := map[string]int{}
	for _, r := range s.Sentinels {
		fields := strings.Fields(r.Ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", PrimaryName))
		if len(fields) == 2 {
			named[net.JoinHostPort(fields[0], fields[1])]++
		}
	}
	for _, r := range s.Servers {
		if named[r.Addr] > len(s.Sentinels)/2 {
			return r
		}
	}
	return nil
}

// AwaitPrimary waits until a majority of the sentinels name another primary than before, and returns it.
func (s *Sentinels) AwaitPrimary(before *Redis) (now *Redis) {
	s.t.Helper()
	await(s.t, "another server is the primary", func() bool {
		now = s.Primary()
		return now != nil && now != before
	})
	return now
}

// Failover orders a fail-over, as an operator does.
func (s *Sentinels) Failover() {
	s.t.Helper()
	await(s.t, "a fail-over begins", func() bool { return s.Sentinels[0].Ask("SENTINEL", "FAILOVER", PrimaryName) == "OK" })
}
