package testserver

import (
	"net"
	"strconv"
	"testing"
	"time"
)

// StartRedisReplicas starts replicas of a server that has none, and returns when each of them follows
// it. They end with the test.
func StartRedisReplicas(t testing.TB, primary *Redis, n int, o RedisOptions) []*Redis {
	t.Helper()
	replicas := make([]*Redis, n)
	for i := range replicas {
		replicas[i] = StartRedis(t, o)
		replicas[i].Follow(primary.Addr)
	}
	primary.AwaitReplicas(n)
	return replicas
}

// Follow makes the server a replica of the one at an address, or of nobody if that is "": then it is a
// primary, as after a fail-over by hand.
func (r *Redis) Follow(address string) {
	r.t.Helper()
	host, port := "NO", "ONE"
	if address != "" {
		host, port, _ = net.SplitHostPort(address)
	}
	if got := r.Ask("REPLICAOF", host, port); got != "OK" {
		r.t.Fatalf("%s, REPLICAOF: %s", r.Addr, got)
	}
}

// AwaitReplicas returns when as many replicas have all data of the server and acknowledge what comes.
func (r *Redis) AwaitReplicas(n int) {
	r.t.Helper()
	r.Ask("CONFIG", "SET", "repl-diskless-sync-delay", "0") // else it waits for more of them
	for end := time.Now().Add(time.Minute); ; {
		// A message is replicated, and leaves no key.
		got := r.exchange([]string{"PUBLISH", "replicas", ""}, []string{"WAIT", strconv.Itoa(n), "100"})
		if have, err := strconv.Atoi(got); err == nil && have >= n {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("%s has no %d replicas within a minute: %s; %s", r.Addr, n, got, r.Ask("INFO", "replication"))
		}
		time.Sleep(time.Millisecond)
	}
}
