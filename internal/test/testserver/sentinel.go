package testserver

import (
	"cmp"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// PrimaryName is the name by which the sentinels of [StartSentinels] know the primary.
const PrimaryName = "locks"

// SentinelOptions configure a deployment with Redis Sentinel.
type SentinelOptions struct {
	Replicas int      // 0: two
	Args     []string // more arguments of the primary and its replicas
	Password string   // of the servers, as Args say, and of the sentinels
}

// Sentinels is a primary with replicas and three sentinels.
type Sentinels struct {
	Servers   []*Redis // the first is the primary at the beginning
	Sentinels []*Redis
	t         testing.TB
	password  string
}

// StartSentinels starts a deployment, which ends with the test. The sentinels promote a replica about a
// second after the primary has fallen silent. It needs the package redis-server: see [Need].
func StartSentinels(t testing.TB, o SentinelOptions) *Sentinels {
	t.Helper()
	s := &Sentinels{t: t}
	args := append([]string{"--repl-diskless-sync-delay", "0"}, o.Args...)
	s.Servers = []*Redis{StartRedis(t, RedisOptions{Args: args})}
	for range cmp.Or(o.Replicas, 2) {
		s.Servers = append(s.Servers, StartRedis(t, RedisOptions{
			Args: append([]string{"--replicaof", "127.0.0.1 " + portOf(s.Servers[0].Addr)}, args...),
		}))
	}
	var lines []string
	if s.password = o.Password; o.Password != "" {
		lines = []string{"requirepass " + o.Password, "sentinel auth-pass " + PrimaryName + " " + o.Password}
	}
	return s.watched(lines)
}

// WatchBySentinels is StartSentinels for servers that have been started, with more lines of the
// sentinels' configuration.
func WatchBySentinels(t testing.TB, primary *Redis, replicas []*Redis, lines ...string) *Sentinels {
	t.Helper()
	s := &Sentinels{t: t, Servers: append([]*Redis{primary}, replicas...)}
	return s.watched(lines)
}

// watched starts the sentinels, and waits until all know each other and the replicas follow.
func (s *Sentinels) watched(lines []string) *Sentinels {
	s.t.Helper()
	for range 3 {
		s.Sentinels = append(s.Sentinels, startSentinel(s.t, portOf(s.Servers[0].Addr), lines))
	}
	replicas := strconv.Itoa(len(s.Servers) - 1)
	await(s.t, "each sentinel knows all replicas and sentinels", func() bool {
		for _, r := range s.Sentinels {
			state := s.ask(r, "SENTINEL", "MASTER", PrimaryName)
			if !strings.Contains(state, " num-slaves "+replicas+" ") || !strings.Contains(state, " num-other-sentinels 2 ") {
				return false
			}
		}
		return true
	})
	for _, r := range s.Servers[1:] {
		await(s.t, "the replicas follow", func() bool { return strings.Contains(s.ask(r, "INFO", "replication"), "master_link_status:up") })
	}
	return s
}

// startSentinel starts one sentinel.
func startSentinel(t testing.TB, primaryPort string, lines []string) *Redis {
	t.Helper()
	program := Need(t, "redis-server", "redis-server")
	dir := shortDir(t, "")
	r := &Redis{process: &process{t: t, ready: "+monitor"}}
	r.serve(func(port string) []string {
		return []string{program, writeLines(t, filepath.Join(dir, "sentinel.conf"), append([]string{
			"bind 127.0.0.1", "port " + port, "dir " + dir,
			"sentinel monitor " + PrimaryName + " 127.0.0.1 " + primaryPort + " 2",
			"sentinel down-after-milliseconds " + PrimaryName + " 500",
			"sentinel failover-timeout " + PrimaryName + " 5000",
			"sentinel parallel-syncs " + PrimaryName + " 2",
		}, lines...)...), "--sentinel"}
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
		fields := strings.Fields(s.ask(r, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", PrimaryName))
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
	await(s.t, "a fail-over begins", func() bool { return s.ask(s.Sentinels[0], "SENTINEL", "FAILOVER", PrimaryName) == "OK" })
}

// ask is Redis.Ask with the password.
func (s *Sentinels) ask(r *Redis, args ...string) string {
	if s.password != "" {
		return r.exchange([]string{"AUTH", s.password}, args)
	}
	return r.exchange(args)
}
