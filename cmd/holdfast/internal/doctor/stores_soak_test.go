//go:build soak

package doctor

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // for execute
	_ "github.com/jackc/pgx/v5/stdlib" // likewise

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/sqllock"
)

// execute returns what runs statements in a database.
func execute(t *testing.T, driver, dsn string) func(texts ...string) {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	testserver.Must(t, err)
	t.Cleanup(func() { db.Close() })
	return func(texts ...string) {
		t.Helper()
		for _, text := range texts {
			if _, err := db.ExecContext(t.Context(), text); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
		}
	}
}

// rights takes the rights on tables away in turn.
func rights(t *testing.T, url, prefix, clerk string, do func(...string)) {
	t.Helper()
	do("GRANT SELECT, INSERT, UPDATE ON "+prefix+"_meta TO "+clerk, "GRANT SELECT, INSERT, UPDATE, DELETE ON "+prefix+"_locks TO "+clerk)
	expect(t, examine(t, url), want{"access", Error, "on " + prefix + "_places"})
	do("GRANT SELECT, INSERT, UPDATE, DELETE ON " + prefix + "_places TO " + clerk)
	expect(t, examine(t, url), want{"access", OK, "may do all"}, want{"lock", OK, ""})
	for right, severity := range map[string]Severity{"SELECT": Error, "INSERT": Error, "UPDATE": Error, "DELETE": Warning} {
		do("REVOKE " + right + " ON " + prefix + "_locks FROM " + clerk)
		expect(t, examine(t, url), want{"access", severity, right + " on " + prefix + "_locks"})
		do("GRANT " + right + " ON " + prefix + "_locks TO " + clerk)
	}
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	server := testserver.StartPostgres(t, "fsync=on", "password_encryption=scram-sha-256")
	here := server.URL("postgres")
	do := execute(t, "pgx", here)
	expect(t, examine(t, here), want{"schema", OK, "no other schema"})
	do("CREATE SCHEMA other; SET search_path = other; " + sqllock.Schema(sqllock.Postgres, "") + "; RESET search_path")
	for params, w := range map[string]want{
		"": {"schema", Warning, "in schema public; other schemas have tables of the same name: other"}, "&hf.tables=other.holdfast": {"schema", OK, "names schema other"},
		"&default_transaction_read_only=on": {"role", Error, "read-only"}, "&synchronous_commit=off": {"durability", Warning, "synchronous_commit"},
	} {
		expect(t, examine(t, here+params), w)
	}
	do(sqllock.Schema(sqllock.Postgres, "flat"), "ALTER TABLE flat_locks SET UNLOGGED")
	expect(t, examine(t, here+"&hf.tables=flat"), want{"lock", Error, "1 of the 3 tables"})
	expect(t, examine(t, here+"&hf.tables=quick&hf.durable=no"), want{"durability", Note, "unlogged"})
	expect(t, examine(t, testserver.StartPgbouncer(t, server, "transaction").URL("postgres")), want{"access", OK, ""}, want{"schema", Warning, ""})
	do("CREATE ROLE clerk LOGIN PASSWORD '"+password+"'", "REVOKE CREATE ON SCHEMA public FROM PUBLIC", sqllock.Schema(sqllock.Postgres, "given"))
	examine(t, here+"&hf.tables=given") // completes the tables
	as := strings.Replace(here, "postgres@", "clerk:"+password+"@", 1)
	expect(t, examine(t, as+"&hf.tables=absent"), want{"lock", Error, "absent"})
	rights(t, as+"&hf.tables=given", "given", "clerk", do)
}

func TestPostgresCluster(t *testing.T) {
	t.Parallel()
	cluster := testserver.StartPostgresCluster(t, "FIRST 1 (one, two)")
	primary, one, two, all := cluster.Primary, cluster.Standbys[0], cluster.Standbys[1], cluster.URL("postgres")
	expect(t, examine(t, all), want{"hosts", OK, "takes writes: " + primary.Addr + "; standby: " + one.Addr + ", " + two.Addr}, want{"replication", Note, "1 of the 2"})
	expect(t, examine(t, all+"&synchronous_commit=local"), want{"replication", Note, "do not wait"})
	expect(t, examine(t, all+"&synchronous_commit=local&hf.forget=go"), want{"replication", Warning, "do not wait"})
	expect(t, examine(t, one.URL("postgres")), want{"role", Error, "standby"}, want{"lock", Error, ""})
	two.Kill()
	expect(t, examine(t, all), want{"hosts", OK, "not reached: " + two.Addr})
	primary.Query("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()") // else its commits wait
	one.Query("SELECT pg_promote()")
	expect(t, examine(t, all), want{"hosts", Error, "takes writes: " + primary.Addr + ", " + one.Addr})
}

func TestMySQL(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB, ...string) *testserver.MySQL{"MySQL": testserver.StartMySQL, "MariaDB": testserver.StartMariaDB} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := start(t, inOrder...)
			here, do := server.URL(), execute(t, "mysql", "root@tcp("+server.Addr+")/test")
			expect(t, examine(t, here), want{"role", OK, "this is " + name}, want{"tables", OK, ""}, want{"durability", OK, ""}, want{"replication", OK, "no replica reads"}, want{"sessions", OK, ""})
			expect(t, examine(t, here+"?autocommit=0"), want{"role", Error, "autocommit"})
			examine(t, here+"?hf.tables=isam") // makes the tables
			do("ALTER TABLE isam_locks ENGINE = MyISAM", "SET GLOBAL innodb_flush_log_at_trx_commit = 2")
			expect(t, examine(t, here+"?hf.tables=isam"), want{"tables", Error, "isam_locks is MyISAM"}, want{"durability", Note, "is 2"})
			do("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
			do("CREATE USER clerk@localhost IDENTIFIED BY '"+password+"'", "CREATE DATABASE shop") // in MariaDB the database test belongs to all
			ours := strings.Replace(here, "/test", "/shop", 1)
			examine(t, ours) // makes the tables
			rights(t, strings.Replace(ours, "root@", "clerk:"+password+"@", 1), "holdfast", "clerk@localhost", execute(t, "mysql", "root@tcp("+server.Addr+")/shop"))
			if name == "MySQL" {
				return
			}
			replica := start(t, "--server-id=2", "--read-only")
			host, port, _ := net.SplitHostPort(server.Addr)
			execute(t, "mysql", "root@tcp("+replica.Addr+")/test")("CHANGE MASTER TO MASTER_HOST = '"+host+"', MASTER_PORT = "+port+", MASTER_USER = 'root', MASTER_USE_GTID = no", "START SLAVE")
			await(t, "the replica", func() bool { return examine(t, here)["replication"].Severity == Note })
			expect(t, examine(t, here), want{"replication", Note, "replicas that follow: 1"})
			expect(t, examine(t, replica.URL()), want{"role", Error, "read-only"})
		})
	}
}

func TestEtcd(t *testing.T) {
	t.Parallel()
	e := testserver.StartEtcd(t, testserver.EtcdOptions{Members: 3})
	expect(t, examine(t, "etcd://"+e.Addrs()), want{"quorum", OK, "all 3 members"}, want{"version", OK, ""}, want{"access", "", ""})
	expect(t, examine(t, "etcd://u:p@"+e.Addrs()), want{"access", Warning, "asks nobody"})
	e.Members[1].Kill()
	expect(t, examine(t, "etcd://"+e.Addrs()), want{"quorum", Warning, "m1"})
	e.Members[2].Kill()
	expect(t, examine(t, "etcd://"+e.Addrs()), want{"quorum", Error, ""})
}

func TestZooKeeper(t *testing.T) {
	t.Parallel()
	z := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{Members: 3, NoLeaderClients: true})
	one := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{})
	two := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{MinSession: 40e9, MaxSession: 50e9})
	// open examines a store that opens. The driver gives that five seconds, which a busy server may not keep.
	open := func(url string) (found map[string]Finding) {
		defer func() {
			if found["sessions"].Check == "" {
				t.Logf("%s: %+v", url, found)
			}
		}()
		await(t, "the store to open", func() bool {
			found = examine(t, url)
			return found["sessions"].Check != ""
		})
		return found
	}
	url := "zk://" + z.Addrs() + "/app"
	expect(t, open(url), want{"quorum", OK, ""}, want{"version", OK, ""}, want{"leader", Warning, "no server"}, want{"access", Note, "may delete"}, want{"lock", OK, ""})
	// In a directory of its own: a client of both may leave nodes at one of them that a client of that one refuses.
	expect(t, examine(t, "zk://"+one.Addrs()+","+two.Addrs()+"/both"), want{"quorum", Error, "know nothing of each other"})
	expect(t, open("zk://"+two.Addrs()+"/app"), want{"sessions", Error, "from 40s to 50s; the TTL of locks is 30s"})
	expect(t, open("zk://"+two.Addrs()+"/app?hf.ttl=45s"), want{"sessions", OK, ""})
	down := z.Followers()
	down[0].Kill()
	expect(t, examine(t, url), want{"quorum", Warning, down[0].Addr})
	down[1].Kill()
	await(t, "the leader to give up", func() bool { return examineWithin(t, url, 1e9)["quorum"].Severity == Error })
}

func TestCell(t *testing.T) {
	t.Parallel()
	c, other := testserver.StartCell(t, testserver.CellOptions{Members: 3}), testserver.StartCell(t, testserver.CellOptions{Args: []string{"--reserve", "1000000000"}})
	url := "cell://" + c.Addrs() + "/app"
	expect(t, examine(t, url), want{"quorum", OK, ""}, want{"members", OK, "all 3"}, want{"lock", OK, ""})
	expect(t, examine(t, url+"?hf.ttl=1s"), want{"TTL", Error, "the TTL is 1s"})
	expect(t, examine(t, "cell://"+c.Members[0].Addr), want{"members", Warning, "URL names 1"})
	expect(t, examine(t, "cell://"+c.Addrs()+","+other.Addrs()), want{"one cell", Error, ""}, want{"space", Error, "reserve"})
	c.Members[2].Kill()
	expect(t, examine(t, url), want{"quorum", Warning, c.Members[2].Addr})
	c.Members[1].Kill()
	c.Members[0].Kill()
	expect(t, examine(t, url), want{"quorum", Error, "no member answers"})
}

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
	testserver.Must(t, err)
	conn, err := redislock.Dial(t.Context(), u)
	testserver.Must(t, err)
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

// use does what locks can do, while another client waits. Alone: only mutexes.
func use(ctx context.Context, url string, alone bool) error {
	a, err1 := holdfast.Open(ctx, url)
	b, err2 := holdfast.Open(ctx, url)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	defer a.Close()
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
		next := make(chan error, 1)
		go func() { next <- lock(b).Do(ctx, func(context.Context, *holdfast.Lease) error { return nil }) }()
		time.Sleep(1500 * time.Millisecond) // the waiter confirms its place each second
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
		if err := errors.Join(b.Break(ctx, held.Name(), info.Holders[0].Token), held.Renew(ctx)); !errors.Is(err, holdfast.ErrBroken) {
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
	"": {waits: true}, "lock": {layout: redislock.Redisson, kind: redislock.RedissonLock},
	"fair": {layout: redislock.Redisson, kind: redislock.RedissonFair}, "fenced": {layout: redislock.Redisson, kind: redislock.RedissonFenced},
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
			testserver.Must(t, use(t.Context(), url, name != "" && name != "lock"))
			for seen := range commandsSeen(ask) {
				if !slices.Contains(acl, "+"+seen) {
					t.Errorf("the driver runs %s, which the doctor does not try", seen)
				}
			}
			if name == "" {
				url = user("blind", "-info") + "?hf.forget=go"
			}
			found := examine(t, url)
			expect(t, found, want{"access", OK, "may do all"}, want{"lock", OK, ""}, want{"server clock", OK, ""})
			for _, check := range []string{"version", "role", "replicas", "eviction", "persistence"} { // where we may not look we do not guess
				expect(t, found, want{check, Note, "not seen"})
			}
			expect(t, examine(t, user("info", "+info")), want{"role", OK, ""}, want{"eviction", OK, ""}, want{"persistence", Note, "not seen what"})
			for i, rule := range acl {
				if command, is := strings.CutPrefix(rule, "+"); is && command != "unsubscribe" && command != "ping" && (name == "" || i%8 == 0) {
					expect(t, examine(t, user(fmt.Sprint("without", i), "-"+command)), want{"access", Error, strings.ToUpper(command)})
				}
			}
			expect(t, examine(t, user("keys", "resetkeys", "~other:*")), want{"access", Error, "NOPERM"})
			expect(t, examine(t, user("channels", "resetchannels", "&other:*")), want{"access", Error, "SUBSCRIBE"})
			if name == "" { // a prefix of names may be all that is allowed
				tenant := user("billing", "resetkeys", "~holdfast:{billing/*", "~holdfast:store", "~holdfast:life:*") + "?hf.prefix=billing/"
				expect(t, examine(t, tenant), want{"access", OK, ""}, want{"lock", OK, ""})
			}
		})
	}
}

// commandsSeen returns the commands that a server has received, but for those of the test and of connections, and one
// that may be refused.
func commandsSeen(ask func(...string) any) map[string]bool {
	seen := map[string]bool{}
	for line := range strings.Lines(ask("INFO", "commandstats").(string)) {
		if name, ok := strings.CutPrefix(line, "cmdstat_"); ok {
			name, _, _ = strings.Cut(name, ":")
			seen[name] = true
		}
	}
	for _, ours := range []string{"info", "config|get", "config|resetstat", "hello", "auth", "acl|setuser", "client|setinfo", "client|setname", "client|tracking", "ping", "select", "unsubscribe"} {
		delete(seen, ours)
	}
	return seen
}

// TestDeadServer: of a server that is not there, or says nothing, doctor says nothing that it has not seen.
func TestDeadServer(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, and nobody answers
	testserver.Must(t, err)
	t.Cleanup(func() { silent.Close() })
	for _, scheme := range []string{"redis", "etcd", "postgres", "mariadb", "zk"} {
		for what, addr := range map[string]string{"absent": "127.0.0.1:1", "silent": silent.Addr().String()} {
			t.Run(scheme+" "+what, func(t *testing.T) {
				t.Parallel()
				found := examineWithin(t, scheme+"://u:"+password+"@"+addr+"/x", time.Second)
				expect(t, found, want{"lock", Error, ""})
				if f := found["quorum"]; f.Severity == Error { // the cluster is what is dead
					delete(found, "quorum")
				}
				if len(found) > 1 {
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
	expect(t, examine(t, url), want{"role", OK, ""}, want{"replicas", Warning, "replicas: 1; min-replicas-to-write is 0"}, want{"forgetting", OK, ""}, want{"persistence", Note, "nothing is written"})
	expect(t, examine(t, url+"?hf.forget=go"), want{"replicas", Warning, "do not wait until"}, want{"forgetting", Note, "go"}, want{"persistence", Warning, "nothing is written"})
	expect(t, examine(t, url+"?hf.replicas=1"), want{"replicas", OK, "each of them must acknowledge"}, want{"lock", OK, ""})
	expect(t, examine(t, url+"?hf.replicas=2"), want{"replicas", Error, "hf.replicas is 2"}, want{"lock", Error, "1 of 2 replicas"})
	admin(t, primary.Addr)("CONFIG", "SET", "min-replicas-to-write", "1")
	expect(t, examine(t, url), want{"replicas", OK, "stops granting"})
	fresh := redisOf(t, testserver.RedisOptions{Fresh: true})
	expect(t, examine(t, redisURL(fresh.Addr, "")), want{"lock", Note, "a lock is not granted for another "})
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
	expect(t, examine(t, raw+"?hf.layout=redisson"), want{"access" + one, OK, ""}, want{"lock", OK, ""})
	c.Servers[1].Ask("ACL", "SETUSER", "default", "-scan")
	expect(t, examine(t, raw), want{"access" + one, Error, "refused: SCAN"})
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
	needs := (&redisServer{votes: true}).needs(t.Context())
	acl := strings.Fields(needs.acl())
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
		want{"server clock of " + durable.Addr, OK, ""}, want{"server clock of " + wrong.Addr, Warning, ""}, want{"access" + at, OK, ""})
	expect(t, examine(t, url("default")+"?hf.durable=yes"), want{"persistence of " + durable.Addr, OK, ""}, want{"persistence" + at, Error, ""})
	expect(t, examine(t, url("enough")), want{"access" + at, OK, "may do"})
	expect(t, examine(t, url("noinfo")), want{"access" + at, Error, `user "noinfo" was refused: INFO`}, want{"access of " + durable.Addr, OK, ""})
	expect(t, examine(t, url("nokeys")), want{"access" + at, Error, "EVAL, GET"})
	expect(t, examine(t, url("noinfo")+"?hf.durable=yes"), want{"access" + at, OK, ""}) // durable servers need none of it
}
