//go:build soak

package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/redislock"
)

// redisOf starts a server with arguments of its own.
func redisOf(t *testing.T, o testserver.RedisOptions, args ...string) *testserver.Redis {
	t.Helper()
	o.Args = append([]string{"--requirepass", password, "--masterauth", password}, args...)
	return testserver.StartRedis(t, o)
}

func redisURL(addr, user string) string { return "redis://" + user + ":" + password + "@" + addr }

// admin connects to a server, to prepare it.
func admin(t *testing.T, addr string) func(args ...string) any {
	t.Helper()
	u, err := driver.ParseURL(redisURL(addr, ""))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := redislock.Dial(t.Context(), u)
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

// await waits until something is so.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("in vain: %s", what)
		}
	}
}

// use does all that locks can do, while others wait. Alone: only mutexes.
func use(ctx context.Context, url string, alone bool) error {
	a, err := holdfast.Open(ctx, url)
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := holdfast.Open(ctx, url)
	if err != nil {
		return err
	}
	defer b.Close()
	kinds := []func(*holdfast.Client) *holdfast.Lock{func(c *holdfast.Client) *holdfast.Lock { return c.Mutex("m", nil) }}
	if !alone {
		kinds = append(kinds, func(c *holdfast.Client) *holdfast.Lock { return c.RWMutex("rw", nil).Write },
			func(c *holdfast.Client) *holdfast.Lock { return c.RWMutex("r", nil).Read },
			func(c *holdfast.Client) *holdfast.Lock { return c.Semaphore("s", 1, nil) })
	}
	for _, lock := range kinds {
		held, err := lock(a).Acquire(ctx)
		if err != nil {
			return err
		}
		brief, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		err = lock(b).Do(brief, func(context.Context, *holdfast.Lease) error { return nil }) // a reader shares
		if cancel(); err != nil && !errors.Is(err, holdfast.ErrHeld) && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		next := make(chan error, 1)
		go func() { next <- lock(b).Do(ctx, func(context.Context, *holdfast.Lease) error { return nil }) }()
		time.Sleep(1500 * time.Millisecond) // the waiter confirms its place each second
		if err := held.Downgrade(ctx); err != nil && !errors.Is(err, holdfast.ErrUnsupported) && !strings.Contains(err.Error(), "slot") {
			return err
		}
		if err := errors.Join(held.Renew(ctx), held.Release(), <-next); err != nil {
			return err
		}
		if held, err = lock(a).Acquire(ctx); err != nil {
			return err
		}
		info, err := b.Inspect(ctx, held.Name())
		if err != nil || len(info.Holders) != 1 {
			return fmt.Errorf("%+v, %w", info, err)
		}
		if err := b.Break(ctx, held.Name(), info.Holders[0].Token); err != nil {
			return err
		}
		if err := held.Renew(ctx); !errors.Is(err, holdfast.ErrBroken) {
			return fmt.Errorf("renewing what was broken: %w", err)
		}
	}
	for _, err := range a.List(ctx, "") {
		if err != nil {
			return err
		}
	}
	return nil
}

// layouts are the kinds of locks that need rights of their own.
var layouts = map[string]*redisServer{
	"": {}, "fair": {layout: redislock.Redisson, kind: redislock.RedissonFair}, "fenced": {layout: redislock.Redisson, kind: redislock.RedissonFenced},
	"lock": {layout: redislock.Redisson, kind: redislock.RedissonLock}, "spin": {layout: redislock.Redisson, kind: redislock.RedissonSpin},
}

// TestAccess: for each layout the rights that the doctor names are those that a server has seen the driver need, they
// are enough, and what is missing is named.
func TestAccess(t *testing.T) {
	for name, r := range layouts {
		t.Run(cmp.Or(name, "own"), func(t *testing.T) {
			t.Parallel()
			addr, params := redisOf(t, testserver.RedisOptions{}).Addr, ""
			if name != "" {
				params = "?hf.layout=redisson&hf.redisson=" + name
			}
			ask := admin(t, addr)
			// What has ended, so that it is removed.
			ask("RPUSH", "redisson_lock_queue:{m}", "dead")
			ask("ZADD", "redisson_lock_timeout:{m}", "1", "dead")
			ask("SET", "s", "0")
			ask("ZADD", "{s}:timeout", "1", "sixteen bytes...")
			ask("CONFIG", "RESETSTAT")
			needs := r.needs(t.Context())
			acl := strings.Fields(needs.acl())
			user := func(name string, without ...string) string {
				ask(slices.Concat([]string{"ACL", "SETUSER", name, "on", ">" + password}, acl, without)...)
				return redisURL(addr, name) + params
			}
			url := user("enough")
			if err := use(t.Context(), url, name != "" && name != "lock"); err != nil {
				t.Fatal(err)
			}
			for seen := range commandsSeen(ask) {
				if !slices.Contains(acl, "+"+seen) {
					t.Errorf("the driver runs %s, which the doctor does not try", seen)
				}
			}
			if seen := commandsSeen(ask); name == "" || name == "lock" {
				for _, rule := range acl {
					if command, is := strings.CutPrefix(rule, "+"); is && !seen[command] && command != "unsubscribe" {
						t.Errorf("the doctor tries %s, which the driver does not run", command)
					}
				}
			}
			found := examine(t, url)
			expect(t, found, want{"access", OK, "may do all"}, want{"lock", OK, ""}, want{"server clock", OK, ""})
			for _, check := range []string{"version", "role", "replicas", "eviction", "persistence"} { // where we may not look we do not guess
				expect(t, found, want{check, Note, "not seen"})
			}
			expect(t, examine(t, user("info", "+info")), want{"role", OK, ""}, want{"eviction", OK, ""}, want{"persistence", Note, "not seen what"})
			for i, rule := range acl {
				if command, is := strings.CutPrefix(rule, "+"); is && command != "unsubscribe" && (name == "" || i%8 == 0) {
					expect(t, examine(t, user(fmt.Sprint("without", i), "-"+command)), want{"access", Error, strings.ToUpper(command)})
				}
			}
			expect(t, examine(t, user("keys", "resetkeys", "~other:*")), want{"access", Error, "NOPERM"})
			expect(t, examine(t, user("channels", "resetchannels", "&other:*")), want{"access", Error, "SUBSCRIBE"})
			if name == "" { // a prefix of names may be all that is allowed
				tenant := user("billing", "resetkeys", "~holdfast:{billing/*", "~holdfast:store") + "?hf.prefix=billing/"
				expect(t, examine(t, tenant), want{"access", OK, ""}, want{"lock", OK, ""})
			}
		})
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
	for _, ours := range []string{"info", "config|resetstat", "hello", "auth", "acl|setuser", "client|setinfo", "client|setname", "client|tracking", "ping", "select", "unsubscribe"} {
		delete(seen, ours)
	}
	return seen
}

// TestRedissonData: locks without an end are named, and other data are not.
func TestRedissonData(t *testing.T) {
	t.Parallel()
	server := redisOf(t, testserver.RedisOptions{})
	ask := admin(t, server.Addr)
	url := redisURL(server.Addr, "") + "?hf.layout=redisson"
	const java = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa:1"
	ask("HSET", "ends", java, "1")
	ask("PEXPIRE", "ends", "600000")
	ask("HSET", "user:1", "name", "x", "age", "7")
	expect(t, examine(t, url), want{"data of Redisson", OK, "all locks end"})
	for i := range 7 {
		ask("HSET", fmt.Sprint("endless ", i), "mode", "read", java, "1")
	}
	found := examine(t, url)
	expect(t, found, want{"data of Redisson", Warning, `"endless `}, want{"data of Redisson", Warning, "and 2 more"})
	if text := found["data of Redisson"].Found; strings.Contains(text, "user") || strings.Contains(text, `"ends"`) {
		t.Errorf("other data are named: %s", text)
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
	for _, scheme := range []string{"redis", "etcd", "postgres", "mariadb", "zk"} {
		for what, addr := range map[string]string{"absent": "127.0.0.1:1", "silent": silent.Addr().String()} {
			t.Run(scheme+" "+what, func(t *testing.T) {
				t.Parallel()
				found := examineWithin(t, scheme+"://u:"+password+"@"+addr+"/x", time.Second)
				expect(t, found, want{"clock", OK, ""}, want{"lock", Error, ""})
				if f := found["quorum"]; f.Severity == Error { // the cluster is what is dead
					delete(found, "quorum")
				}
				if len(found) > 2 {
					t.Errorf("it has seen what it cannot have seen: %+v", found)
				}
			})
		}
	}
}

// TestRedisDeployments: a replica, a server without memory, one that is alone in its cluster, a primary that sentinels
// name, and a cluster.
func TestRedisDeployments(t *testing.T) {
	t.Parallel()
	primary, full := redisOf(t, testserver.RedisOptions{}), redisOf(t, testserver.RedisOptions{})
	host, port, _ := net.SplitHostPort(primary.Addr)
	replica := redisOf(t, testserver.RedisOptions{}, "--replicaof", host, port)
	url := redisURL(primary.Addr, "")
	await(t, "the replica", func() bool { return examine(t, url)["replicas"].Severity == Warning })
	expect(t, examine(t, url), want{"role", OK, ""}, want{"replicas", Warning, "replicas: 1; min-replicas-to-write is 0"})
	expect(t, examine(t, url+"?hf.replicas=1"), want{"replicas", OK, "each of them must acknowledge"}, want{"lock", OK, ""})
	expect(t, examine(t, url+"?hf.replicas=2"), want{"replicas", Error, "hf.replicas is 2"}, want{"lock", Error, "1 of 2 replicas"})
	expect(t, examine(t, redisURL(replica.Addr, "")), want{"role", Error, "a replica of " + primary.Addr}, want{"replicas", "", ""}, want{"lock", Error, "READONLY"})
	admin(t, full.Addr)("CONFIG", "SET", "maxmemory", "1") // which is not a matter of permissions
	expect(t, examine(t, redisURL(full.Addr, "")), want{"writes", Error, "refuses writes: OOM "}, want{"access", "", ""}, want{"lock", Error, "OOM"})
	alone := redisOf(t, testserver.RedisOptions{}, "--cluster-enabled", "yes")
	expect(t, examine(t, redisURL(alone.Addr, "")), want{"role", Error, "node of a Redis Cluster"}, want{"lock", Error, ""})

	s := testserver.StartSentinels(t, testserver.SentinelOptions{})
	expect(t, examine(t, "redis+sentinel://"+s.Addrs()+"/"+testserver.PrimaryName), want{"transport", OK, "on this host"}, want{"role", OK, "master"}, want{"access", OK, ""})
	expect(t, examine(t, redisURL(s.Sentinels[0].Addr, "")), want{"lock", Error, ""})

	c := testserver.StartCluster(t, testserver.ClusterOptions{Replicas: true, AOF: true})
	raw, one := "redis+cluster://"+c.Addrs(), " of "+c.Servers[1].Addr
	expect(t, examine(t, raw), want{"role" + one, OK, "master"}, want{"access" + one, OK, ""}, want{"persistence" + one, OK, ""}, want{"replicas" + one, Warning, "replicas: 1"})
	expect(t, examine(t, raw+"?hf.layout=redisson"), want{"access" + one, OK, ""}, want{"channels", OK, "hear of releases on 3 masters"}, want{"lock", OK, ""})
	c.Servers[1].Ask("ACL", "SETUSER", "default", "-scan", "-ssubscribe")
	expect(t, examine(t, raw), want{"access" + one, Error, "refused: SCAN"})
	expect(t, examine(t, raw+"?hf.layout=redisson"), want{"channels", Note, "no sharded channels on " + c.Servers[1].Addr})
	c.Servers[0].Kill()
	c.Servers[3].Kill()
	await(t, "the cluster is down", func() bool { return strings.Contains(examine(t, raw)["writes"+one].Found, "CLUSTERDOWN") })
}

// TestRedlock: each server of a Redlock is examined, one that is dead is named, and so is a right that is missing at
// one of them.
func TestRedlock(t *testing.T) {
	t.Parallel()
	durable, forgetful := redisOf(t, testserver.RedisOptions{AOF: true}), redisOf(t, testserver.RedisOptions{})
	wrong, dead := redisOf(t, testserver.RedisOptions{AOF: true, Clock: true}), redisOf(t, testserver.RedisOptions{})
	wrong.Clock.Set(time.Minute)
	dead.Kill()
	needs := new(redisServer).needs(t.Context())
	acl := append(strings.Fields(needs.acl()), "+info")
	for _, s := range []*testserver.Redis{durable, forgetful, wrong} {
		for user, without := range map[string][]string{"enough": nil, "noinfo": {"-info"}, "nokeys": {"resetkeys", "~holdfast:{*", "~holdfast:store"}} {
			if s != forgetful {
				without = nil
			}
			admin(t, s.Addr)(slices.Concat([]string{"ACL", "SETUSER", user, "on", ">" + password}, acl, without)...)
		}
	}
	url := func(user string) string {
		return "redlock://" + user + ":" + password + "@" + strings.Join([]string{durable.Addr, forgetful.Addr, wrong.Addr, dead.Addr}, ",")
	}
	at := " of " + forgetful.Addr
	expect(t, examine(t, url("default")), want{"connection of " + dead.Addr, Warning, ""}, want{"persistence of " + durable.Addr, OK, ""}, want{"persistence" + at, Note, ""},
		want{"server clock of " + durable.Addr, OK, ""}, want{"server clock of " + wrong.Addr, Warning, ""}, want{"votes" + at, OK, ""})
	expect(t, examine(t, url("default")+"?hf.durable=yes"), want{"persistence of " + durable.Addr, OK, ""}, want{"persistence" + at, Error, ""})
	expect(t, examine(t, url("enough")), want{"votes" + at, OK, "may do"})
	expect(t, examine(t, url("noinfo")), want{"votes" + at, Error, `user "noinfo" was refused: INFO server`}, want{"votes of " + durable.Addr, OK, ""})
	expect(t, examine(t, url("nokeys")), want{"votes" + at, Error, "GET holdfast:memory, EVAL"})
	expect(t, examine(t, url("noinfo")+"?hf.durable=yes"), want{"votes" + at, "", ""}) // durable servers need none of it
}
