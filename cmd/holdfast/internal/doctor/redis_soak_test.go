//go:build soak

package doctor

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/rueidisconn"
)

// redisOf starts a server with arguments of its own.
func redisOf(t *testing.T, o testserver.RedisOptions, args ...string) *testserver.Redis {
	t.Helper()
	o.Args = append([]string{"--requirepass", password, "--masterauth", password}, args...)
	return testserver.StartRedis(t, o)
}

func redisURL(addr, user string) string { return "redis://" + user + ":" + password + "@" + addr }

// admin connects to a server, to prepare it.
func admin(t *testing.T, rawURL string) func(args ...string) any {
	t.Helper()
	u, err := driver.ParseURL(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := rueidisconn.Dial(u)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return func(args ...string) any {
		t.Helper()
		reply := conn.Do(t.Context(), []redislock.Command{{Args: args}})[0]
		if reply.Err != nil {
			t.Fatalf("%v: %v", args, reply.Err)
		}
		return reply.Value
	}
}

// A server as it should be has nothing but good findings, but for its version,
// which is that of the system.
func TestRedisInGoodOrder(t *testing.T) {
	t.Parallel()
	server := redisOf(t, testserver.RedisOptions{AOF: true})
	found := examine(t, redisURL(server.Addr, "")+"?hf.prefix=billing/")
	checks := []string{
		"transport", "role", "replicas", "eviction", "persistence", "access", "old records", "server clock",
		"stalls", "connections", "idle connections", "push buffer",
	}
	for _, check := range checks {
		expect(t, found, want{check, OK, ""})
	}
	// These depend on the machine.
	for check, says := range map[string]string{"clock": "clock", "version": "Redis", "latency": "round trips", "lock": "took "} {
		expect(t, found, want{check, found[check].Severity, says})
	}
	if len(found) != len(checks)+4 {
		t.Errorf("%d findings: %v", len(found), found)
	}
	found = examine(t, "redis+unix://:"+password+"@"+server.Socket)
	expect(t, found, want{"transport", OK, "on this host"}, want{"access", OK, ""})

	// What was tried is gone.
	ask := admin(t, redisURL(server.Addr, ""))
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		reply, _ := ask("SCAN", "0", "COUNT", "1000").([]any)
		keys, _ := reply[1].([]any)
		left := slices.DeleteFunc(keys, func(key any) bool {
			return !strings.Contains(fmt.Sprint(key), "doctor") || ask("PTTL", fmt.Sprint(key)).(int64) > 2000
		})
		if len(left) == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("it has left %v", left)
		}
	}
}

// TestRedisSetBadly: one server for each mistake.
func TestRedisSetBadly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		args  []string
		wants []want
	}{
		{"evicts", []string{"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"}, []want{{"eviction", Error, "maxmemory-policy is allkeys-lru"}}},
		{"would evict", []string{"--maxmemory-policy", "volatile-ttl"}, []want{{"eviction", Note, "maxmemory is not set"}}},
		{"nothing on disk", nil, []want{{"persistence", Warning, "nothing is written to disk"}}},
		{"snapshots", []string{"--save", "3600 1"}, []want{{"persistence", Warning, "only snapshots (save 3600 1)"}}},
		{"synced each second", []string{"--appendonly", "yes", "--appendfsync", "everysec"}, []want{{"persistence", Warning, "appendfsync everysec"}}},
		{"cluster", []string{"--cluster-enabled", "yes"}, []want{{"role", Error, "node of a Redis Cluster"}, {"lock", Error, ""}}},
		{"idle connections", []string{"--timeout", "5"}, []want{{"idle connections", Note, "after 5 s"}}},
		{"push buffer", []string{"--client-output-buffer-limit", "pubsub", "32kb", "8kb", "60"}, []want{{"push buffer", Warning, "32768 bytes, or for a while 8192"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			expect(t, examine(t, redisURL(redisOf(t, testserver.RedisOptions{}, c.args...).Addr, "")), c.wants...)
		})
	}
}

func TestRedisFull(t *testing.T) {
	t.Parallel()
	for policy, w := range map[string]want{
		"noeviction":  {"eviction", Warning, "bytes, "},
		"allkeys-lru": {"eviction", Error, "keys evicted so far"},
	} {
		server := redisOf(t, testserver.RedisOptions{}, "--maxmemory-policy", policy)
		ask := admin(t, redisURL(server.Addr, ""))
		for i := range 100 {
			ask("SET", fmt.Sprint("filler", i), strings.Repeat("x", 100_000))
		}
		used := 0
		for line := range strings.Lines(ask("INFO", "memory").(string)) {
			fmt.Sscanf(line, "used_memory:%d", &used)
		}
		ask("CONFIG", "SET", "maxmemory", fmt.Sprint(used+used/40)) // room for the doctor's own connections
		if policy != "noeviction" {
			for i := range 20 {
				ask("SET", fmt.Sprint("more", i), strings.Repeat("x", 100_000))
			}
		}
		expect(t, examine(t, redisURL(server.Addr, "")), w)
	}
}

// TestRedisOutOfMemory: a server that is full is not a matter of permissions.
func TestRedisOutOfMemory(t *testing.T) {
	t.Parallel()
	server := redisOf(t, testserver.RedisOptions{})
	admin(t, redisURL(server.Addr, ""))("CONFIG", "SET", "maxmemory", "1")
	found := examine(t, redisURL(server.Addr, ""))
	expect(t, found, want{"writes", Error, "the server is full: OOM "}, want{"eviction", Error, "of maxmemory, 1 bytes, "}, want{"lock", Error, "OOM"})
	if f, ok := found["access"]; ok {
		t.Errorf("permissions are blamed: %+v", f)
	}
}

// TestDeadServer: of a server that is not there, or says nothing, doctor says nothing that it has not seen.
func TestDeadServer(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, and nobody answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	for _, scheme := range []string{"redis", "etcd", "postgres", "mariadb"} {
		for what, addr := range map[string]string{"absent": "127.0.0.1:1", "silent": silent.Addr().String()} {
			t.Run(scheme+" "+what, func(t *testing.T) {
				t.Parallel()
				found := examineWithin(t, scheme+"://u:"+password+"@"+addr+"/0", time.Second)
				expect(t, found, want{"clock", OK, ""}, want{"lock", Error, ""})
				delete(found, "clock")
				delete(found, "lock")
				if f := found["quorum"]; f.Severity == Error { // the cluster is what is dead
					delete(found, "quorum")
				}
				if len(found) > 0 {
					t.Errorf("it has seen what it cannot have seen: %+v", found)
				}
			})
		}
	}
}

// A directory that is gone, as when its disk is: the server refuses all writes.
func TestRedisDisk(t *testing.T) {
	t.Parallel()
	server := redisOf(t, testserver.RedisOptions{}, "--save", "3600 1000000")
	ask := admin(t, redisURL(server.Addr, ""))
	if err := os.RemoveAll(filepath.Dir(server.Socket)); err != nil {
		t.Fatal(err)
	}
	ask("BGSAVE")
	await(t, "the snapshot to fail", func() bool {
		return strings.Contains(fmt.Sprint(ask("INFO", "persistence")), "rdb_last_bgsave_status:err")
	})
	expect(t, examine(t, redisURL(server.Addr, "")), want{"disk", Error, "the last snapshot failed"}, want{"lock", Error, "MISCONF"})
}

func TestRedisReplica(t *testing.T) {
	t.Parallel()
	master := redisOf(t, testserver.RedisOptions{})
	host, port, _ := net.SplitHostPort(master.Addr)
	replica := redisOf(t, testserver.RedisOptions{}, "--replicaof", host, port)
	ask := admin(t, redisURL(master.Addr, ""))
	await(t, "the replica", func() bool { return strings.Contains(fmt.Sprint(ask("INFO", "replication")), "state=online") })
	expect(t, examine(t, redisURL(master.Addr, "")), want{"role", OK, ""}, want{"replicas", Warning, "replicas: 1"}, want{"replicas", Warning, "min-replicas-to-write is 0"})
	expect(t, examine(t, redisURL(master.Addr, "")+"?hf.replicas=1"), want{"replicas", OK, "each of them must acknowledge"}, want{"lock", OK, ""})
	expect(t, examine(t, redisURL(master.Addr, "")+"?hf.replicas=2"), want{"replicas", Error, "hf.replicas is 2"}, want{"lock", Error, "1 of 2 replicas"})
	found := examine(t, redisURL(replica.Addr, ""))
	expect(t, found, want{"role", Error, "a replica of " + master.Addr}, want{"lock", Error, "READONLY"})
	for _, check := range []string{"replicas", "access"} {
		if f, ok := found[check]; ok {
			t.Errorf("of a replica there is a finding that means nothing: %+v", f)
		}
	}
}

func TestRedisSentinel(t *testing.T) {
	t.Parallel()
	program := testserver.Need(t, "redis-server", "redis-server")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	_, port, _ := net.SplitHostPort(addr)
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	if err := os.WriteFile(file, []byte("bind 127.0.0.1\nport "+port+"\nrequirepass "+password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, file, "--sentinel")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	await(t, "the sentinel", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	expect(t, examine(t, redisURL(addr, "")), want{"role", Error, "this is a Sentinel"}, want{"lock", Error, ""})
}

func TestRedisConnections(t *testing.T) {
	t.Parallel()
	server := redisOf(t, testserver.RedisOptions{}, "--maxclients", "30")
	for range 24 {
		admin(t, redisURL(server.Addr, ""))
	}
	expect(t, examine(t, redisURL(server.Addr, "")), want{"connections", Warning, "of 30 connections"})
}

func TestRedisStalls(t *testing.T) {
	t.Parallel()
	server := redisOf(t, testserver.RedisOptions{})
	ask := admin(t, redisURL(server.Addr, ""))
	ask("EVAL", "local secret, start = '"+password+"', redis.call('TIME') repeat local now = redis.call('TIME') until now[1] - start[1] >= 2 return 1", "0")
	expect(t, examine(t, redisURL(server.Addr, "")), want{"stalls", Warning, "a command EVAL blocked the server for "})
}

// rules are the ACL rules for the commands that the layout without a name needs.
func rules() string {
	n := new(redisServer).needs(context.Background())
	return n.rules()
}

// TestRedisAccess takes every permission away in turn.
func TestRedisAccess(t *testing.T) {
	t.Parallel()
	server := redisOf(t, testserver.RedisOptions{})
	ask := admin(t, redisURL(server.Addr, ""))
	granted := strings.Fields(rules())
	t.Run("without", func(t *testing.T) { // all at a time: a doctor takes two seconds
		for i, missing := range granted {
			user := fmt.Sprint("user", i)
			ask(append([]string{"ACL", "SETUSER", user, "on", ">" + password, "~holdfast:*", "&holdfast:*"}, slices.Delete(slices.Clone(granted), i, i+1)...)...)
			t.Run(missing, func(t *testing.T) {
				t.Parallel()
				expect(t, examine(t, redisURL(server.Addr, user)), want{"access", Error, "user \"" + user + "\" was refused: "},
					want{"access", Error, strings.ToUpper(missing[1:])})
			})
		}
	})
	for user, pattern := range map[string][]string{"keys": {"~other:*", "&holdfast:*"}, "channels": {"~holdfast:*", "&other:*"}, "others": {"~holdfast:{other/*", "~holdfast:store", "&holdfast:*"}} {
		ask(append(append([]string{"ACL", "SETUSER", user, "on", ">" + password}, pattern...), granted...)...)
		expect(t, examine(t, redisURL(server.Addr, user)), want{"access", Error, "NOPERM"})
	}
	// The remedy is enough. Where we may not look we do not guess.
	ask(append([]string{"ACL", "SETUSER", "enough", "on", ">" + password, "~holdfast:*", "&holdfast:*"}, granted...)...)
	found := examine(t, redisURL(server.Addr, "enough"))
	expect(t, found, want{"access", OK, "may do all"}, want{"lock", OK, ""}, want{"server clock", OK, ""})
	for _, check := range []string{"version", "role", "replicas", "eviction", "persistence", "stalls", "connections", "idle connections", "push buffer"} {
		expect(t, found, want{check, Note, "not seen"})
	}
	// INFO alone, as on many managed servers.
	ask("ACL", "SETUSER", "enough", "+info")
	found = examine(t, redisURL(server.Addr, "enough"))
	expect(t, found, want{"role", OK, ""}, want{"eviction", OK, ""}, want{"connections", OK, ""},
		want{"persistence", Note, "not seen whether there are snapshots"}, want{"idle connections", Note, "not seen"})
	// A prefix of names may be all that is allowed.
	ask(append([]string{"ACL", "SETUSER", "billing", "on", ">" + password, "~holdfast:{billing/*", "~holdfast:store", "&holdfast:*"}, granted...)...)
	expect(t, examine(t, redisURL(server.Addr, "billing")+"?hf.prefix=billing/"), want{"access", OK, ""}, want{"lock", OK, ""})
}

// TestOldRecords: records of the form before, a hash, that are in use are named; those that have the
// last token only are not, nor what this version keeps.
func TestOldRecords(t *testing.T) {
	t.Parallel()
	server := redisOf(t, testserver.RedisOptions{})
	url := redisURL(server.Addr, "")
	ask := admin(t, url)
	locks, err := holdfast.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	if _, err := locks.RWMutex("x", nil).Read.Acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	const last = "00000000000000001" + "1"
	ask("HSET", redislock.DefaultPrefix+":{idle}", "last", last)
	ask("HSET", "other:{a}", "last", last, "h:owner", "?")
	expect(t, examine(t, url), want{"old records", OK, "no lock"})
	for i := range 7 {
		ask("HSET", fmt.Sprintf("%s:{used %d}", redislock.DefaultPrefix, i), "last", last, "h:owner", "0 1 0  ")
	}
	found := examine(t, url)
	expect(t, found, want{"old records", Warning, `"holdfast:{used `}, want{"old records", Warning, "and 2 more"})
	if text := found["old records"].Found; strings.Contains(text, "idle") {
		t.Errorf("an idle name is named: %s", text)
	}
}

// TestNeeded compares the list of commands with what the server has seen of the
// driver.
func TestNeeded(t *testing.T) {
	t.Parallel()
	server := redisOf(t, testserver.RedisOptions{})
	ask := admin(t, redisURL(server.Addr, ""))
	ask("CONFIG", "RESETSTAT")
	locks, err := holdfast.Open(t.Context(), redisURL(server.Addr, ""))
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	other, err := holdfast.Open(t.Context(), redisURL(server.Addr, ""))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	first, err := locks.Mutex("x", &holdfast.Options{LockDelay: time.Second, MinHold: time.Millisecond}).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second := make(chan *holdfast.Lease, 1)
	go func() {
		lease, err := other.Mutex("x", nil).Acquire(t.Context())
		if err != nil {
			t.Error(err)
		}
		second <- lease
	}()
	await(t, "the waiter", func() bool {
		info, err := locks.Inspect(t.Context(), "x")
		return err == nil && len(info.Waiters) == 1
	})
	for _, step := range []func() error{
		func() error { return first.Renew(t.Context()) },
		func() error { return first.Downgrade(t.Context()) },
		first.Release,
		func() error { return locks.Break(t.Context(), "x", (<-second).Token()) },
		func() error {
			return locks.Semaphore("s", 2, nil).Do(t.Context(), func(context.Context, *holdfast.Lease) error { return nil })
		},
		func() error {
			for _, err := range locks.List(t.Context(), "") {
				if err != nil {
					return err
				}
			}
			return nil
		},
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	ask("HSET", redislock.DefaultPrefix+":{old}", "last", "00000000000000001"+"1")
	if lease, err := locks.Mutex("old", nil).TryAcquire(t.Context()); err != nil {
		t.Fatal(err)
	} else if err := lease.Release(); err != nil {
		t.Fatal(err)
	}
	seen := commandsSeen(ask)
	allowed := map[string]bool{"subscribe": true}
	for _, a := range needed {
		allowed[a.command] = true
	}
	for name := range seen {
		if !allowed[name] {
			t.Errorf("the driver runs %s, which the doctor does not try", name)
		}
	}
	for name := range allowed {
		if !seen[name] {
			t.Errorf("the doctor tries %s, which the driver does not run", name)
		}
	}
}

// commandsSeen returns the commands that a server has received, but for those of the test and of connections.
func commandsSeen(ask func(...string) any) map[string]bool {
	seen := map[string]bool{}
	for line := range strings.Lines(ask("INFO", "commandstats").(string)) {
		if name, ok := strings.CutPrefix(line, "cmdstat_"); ok {
			name, _, _ = strings.Cut(name, ":")
			seen[name] = true
		}
	}
	for _, ours := range []string{"info", "config|resetstat", "hello", "auth", "client|setinfo", "client|setname", "client|tracking", "ping", "select", "unsubscribe"} {
		delete(seen, ours)
	}
	return seen
}

// await waits until something is so.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("in vain: %s", what)
		}
	}
}
