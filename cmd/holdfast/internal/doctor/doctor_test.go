package doctor

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	_ "github.com/holdfastlock/holdfast/filelock" // file://
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// password is that of every server here: no finding may show it.
const password = "s3cr3t-" + "word"

// examine returns the findings for a store, by check.
func examine(t *testing.T, rawURL string) map[string]Finding {
	t.Helper()
	return examineWithin(t, rawURL, time.Minute)
}

// examineWithin is examine with a limit for opening the store.
func examineWithin(t *testing.T, rawURL string, within time.Duration) map[string]Finding {
	t.Helper()
	u, err := driver.ParseURL(rawURL)
	testserver.Must(t, err)
	p := Patient{URL: u}
	opening, opened := context.WithTimeout(t.Context(), within)
	defer opened()
	if p.Client, p.Err = holdfast.Open(opening, rawURL); p.Err == nil {
		defer p.Client.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	found := map[string]Finding{}
	for _, f := range Examine(ctx, p) {
		if f.Found == "" || (f.Severity != OK) != (f.Risk != "" && f.Remedy != "") {
			t.Errorf("a finding that is not ok has a risk and a remedy, others have not: %+v", f)
		}
		if strings.Contains(fmt.Sprint(f), password) {
			t.Errorf("a password is shown: %+v", f)
		}
		if _, twice := found[f.Check]; twice {
			t.Errorf("two findings of %s", f.Check)
		}
		found[f.Check] = f
	}
	return found
}

// want is what a check is to find.
type want struct {
	check    string
	severity Severity
	says     string
}

func expect(t *testing.T, found map[string]Finding, wants ...want) {
	t.Helper()
	for _, w := range wants {
		if f := found[w.check]; f.Severity != w.severity || !strings.Contains(f.Found, w.says) {
			t.Errorf("%s: %+v, want %s and %q", w.check, f, w.severity, w.says)
		}
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

// own returns the path of a file in a directory that only this user may use.
func own(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	testserver.Must(t, os.Chmod(dir, 0o700))
	return filepath.Join(dir, name)
}

// TestGood: of a store that is as it should be, every check says so.
func TestGood(t *testing.T) {
	t.Parallel()
	const sql = "transport role durability replication access"
	for name, c := range map[string]struct {
		url    func(*testing.T) string
		checks string // which say that all is well
		others []want
	}{
		"Redis": {func(t *testing.T) string {
			s := testserver.StartRedis(t, testserver.RedisOptions{AOF: true, Args: []string{"--requirepass", password}})
			return "redis://:" + password + "@" + s.Addr + "?hf.prefix=billing/"
		}, "transport version role replicas forgetting eviction persistence access", []want{{"server clock", OK, "same rate"}}},
		"etcd": {func(t *testing.T) string {
			return "etcd://" + testserver.StartEtcd(t, testserver.EtcdOptions{}).Addrs()
		}, "transport quorum version", nil},
		"ZooKeeper": {func(t *testing.T) string {
			return "zk://app:" + password + "@" + testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{Old: true}).Addrs() + "/app"
		}, "transport quorum leader access sessions", []want{{"version", Error, "3.8.0"}}},
		"PostgreSQL": {func(t *testing.T) string {
			return testserver.StartPostgres(t, "fsync=on").URL("postgres") + "&hf.prefix=billing/"
		}, sql + " schema", []want{{"server clock", OK, "same rate"}}},
		"MariaDB": {func(t *testing.T) string {
			return testserver.StartMariaDB(t, inOrder...).URL()
		}, sql + " tables sessions", []want{{"server clock", OK, "same rate"}}},
		"SQLite": {func(t *testing.T) string { return "sqlite://" + own(t, "locks.db") }, "directory journal durability tables access",
			[]want{{"place", Warning, os.TempDir()}}}, // so it is, for a test
		"files": {func(t *testing.T) string { return "file://" + own(t, "locks") }, "directory records", []want{{"place", Warning, os.TempDir()}}},
		"cell": {func(t *testing.T) string {
			return "cell://" + testserver.StartCell(t, testserver.CellOptions{}).Addrs() + "/app"
		}, "transport members TTL space", []want{{"quorum", Note, "one member"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, found := c.url(t), map[string]Finding(nil)
			await(t, "the server to be quick enough for the time that opening has", func() bool {
				found = examine(t, url)
				return found["lock"].Severity == OK
			})
			expect(t, found, want{"latency", found["latency"].Severity, "renewals"}) // how it is is the machine's affair
			delete(found, "latency")
			expect(t, found, append(c.others, want{"lock", OK, "took "})...)
			checks := strings.Fields(c.checks)
			for _, check := range checks {
				expect(t, found, want{check, OK, ""})
			}
			if len(found) != len(checks)+len(c.others)+1 {
				t.Errorf("%d findings: %v", len(found), found)
			}
		})
	}
}

// inOrder are the arguments of a server of MySQL or MariaDB as it should be.
var inOrder = []string{"--innodb-flush-log-at-trx-commit=1", "--server-id=1", "--log-bin=binlog", "--binlog-format=ROW"}

// TestRules: what each table makes of facts that differ from those of a store as it should be, where a rule looks at
// several, or a server of a test is not so.
func TestRules(t *testing.T) {
	for _, table := range []struct {
		name  string
		rules []rule
		good  facts
		cases []ruleCase
	}{
		{"redis", slices.Concat(redisRules, accessRules), facts{
			"program": "Redis", "version": "7.0.15", "role": "master", "follow": "0", "replicas": "replicas: 0", "maxmemory": "0",
			"maxmemory-policy": "noeviction", "appendonly": "yes", "appendfsync": "always", "save": "", "user": "u",
		}, []ruleCase{
			{"cluster_enabled=1", "role", Error, "node of a Redis Cluster"},
			{"follow=2; replicas=two", "replicas", Warning, "two, and locks do not wait"},
			{"follow=2; hf.replicas=1", "replicas", Warning, "others need not"},
			{"min-replicas-to-write=1", "replicas", Error, "replicas: 0"},
			{"maxmemory-policy=volatile-ttl", "eviction", Note, "maxmemory is not set"},
			{"maxmemory-policy=allkeys-lru; maxmemory=9", "eviction", Error, "maxmemory is set"},
			{"-appendfsync", "persistence", Note, "not seen what reaches the disk"},
			{"appendonly=no; save=3600", "persistence", Warning, "only snapshots (save 3600)"},
			{"trouble=OOM", "writes", Error, "refuses writes: OOM"},
			{"trouble=OOM", "access", "", ""},
		}},
		{"postgres", slices.Concat(postgresRules, databaseRules), facts{
			"server_version": "15.0", "unlogged": "false", "synchronous_commit": "on", "replicas": "0", "may be synchronous": "0",
			"schema": "public", "other schemas": "", "prefix": "holdfast",
		}, []ruleCase{
			{"replicas=1", "replication", Warning, "do not wait"},
			{"synchronous_standby_names=a", "replication", Error, "none of those follows"},
			{"replicas=1; synchronous=1; may be synchronous=1; synchronous_standby_names=a", "replication", OK, "commits wait"},
			{"replicas=2; synchronous=1; may be synchronous=1; synchronous_standby_names=a", "replication", Note, "1 of the 2"},
			{"replicas=1; may be synchronous=1; synchronous_standby_names=a; synchronous_commit=local", "replication", Warning, `synchronous_commit "local"`},
			{"other schemas=shop", "schema", Warning, "in schema public; other schemas have tables of the same name: shop"},
			{"other schemas=shop; named schema=public", "schema", OK, "names schema public"},
		}},
		{"hosts", hostRules, facts{"takes writes": "a", "standby": "b", "roles": "r"}, []ruleCase{
			{"takes writes=a, b", "hosts", Error, "r"},
			{"-takes writes", "hosts", Error, "r"},
			{"not reached=c", "hosts", OK, "r"},
		}},
		{"mysql", mysqlRules, facts{
			"program": "MariaDB", "version": "10.11.6", "innodb_flush_log_at_trx_commit": "1", "other engines": "",
			"log_bin": "ON", "replicas": "0", "semi-synchronous": "OFF", "own session": "true",
		}, []ruleCase{
			{"other engines=x", "tables", Error, "InnoDB's: x"},
			{"own session=false", "sessions", Warning, "proxy"},
			{"wsrep_cluster_size=3", "replication", Warning, "Galera"},
			{"-log_bin", "replication", OK, "no binary log"},
			{"replicas=1; semi-synchronous=ON; wait point=AFTER_SYNC; sync_binlog=1", "replication", OK, "commits wait"},
			{"replicas=1; semi-synchronous=ON; wait point=AFTER_COMMIT; sync_binlog=1", "replication", Warning, "AFTER_COMMIT"},
		}},
		{"sqlite", sqliteRules, facts{"journal_mode": "wal", "synchronous": "2", "locks": "ok", "places": "ok", "meta": "ok"}, []ruleCase{
			{"journal_mode=memory", "journal", Error, "is memory"},
			{"locks=torn", "tables", Error, "torn"},
		}},
		{"etcd", etcdRules, facts{"answers": "yes", "members": "3", "spare": "1"}, []ruleCase{
			{"silent=x", "quorum", Error, "no member answers for the cluster: x"},
		}},
		{"zookeeper", slices.Concat(zooKeeperRules, trialRules), facts{
			"answers": "a, b, c", "leader": "a", "follower": "b, c", "servers": "3", "spare": "1",
			"shortest": "4s", "longest": "40s", "ttl": "30s", "anyone": "false",
		}, []ruleCase{
			{"-answers; why=x", "quorum", Error, "no server answers: x"},
			{"not serving=a, b, c", "quorum", Error, "have no leader"},
			{"standalone=a, b", "quorum", Error, "know nothing of each other"},
			{"ttl=41s", "sessions", Warning, "from 4s to 40s"},
		}},
		{"cell", cellRules, facts{
			"answers": "a, b, c", "named": "3", "members": "3", "ttl": "30s", "shortest": "2s",
		}, []ruleCase{
			{"down=c", "quorum", Warning, "c"},
			{"strangers=a, b", "one cell", Error, "different cells"},
			{"named=1", "members", Warning, "URL names 1"},
			{"ttl=1s", "TTL", Error, "1s"},
		}},
		{"versions", versionRules, facts{"versions": "1", "answers": "m"}, []ruleCase{
			{"flawed=m has version 1", "version", Error, "m has version 1"},
			{"-versions", "version", Note, "not seen"},
		}},
	} {
		for _, f := range judge(table.good, table.rules...) {
			if f.Severity != OK || strings.Contains(f.Found, "$") {
				t.Errorf("%s: as it should be: %+v", table.name, f)
			}
		}
		for _, c := range table.cases {
			found := slices.DeleteFunc(judge(c.facts(table.good), table.rules...), func(f Finding) bool { return f.Check != c.check })
			switch {
			case c.severity == "" && len(found) == 0:
			case len(found) != 1 || found[0].Severity != c.severity || !strings.Contains(found[0].Found, c.says),
				(c.severity == OK) != (found[0].Risk == "" && found[0].Remedy == ""):
				t.Errorf("%s with %s: %+v, want %s and %q", table.name, c.differ, found, c.severity, c.says)
			}
		}
	}
}

// ruleCase is what facts that differ from others lead to.
type ruleCase struct {
	differ   string // name=value, or -name for one that is missing, with "; " between them
	check    string
	severity Severity // "": there is no finding
	says     string
}

func (c *ruleCase) facts(good facts) facts {
	f := maps.Clone(good)
	for text := range strings.SplitSeq(c.differ, "; ") {
		if name, value, told := strings.Cut(text, "="); told {
			f[name] = value
		} else {
			delete(f, strings.TrimPrefix(name, "-"))
		}
	}
	return f
}

func TestJudgeServerClock(t *testing.T) {
	const ms = time.Millisecond
	start := time.Unix(1_800_000_000, 0)
	at := func(server, before, after time.Duration) clockReading {
		return clockReading{start.Add(server), start.Add(before), start.Add(after), driver.Instant(before), driver.Instant(after)}
	}
	for _, c := range []struct {
		name string
		a, b clockReading
		want Severity
	}{
		{"exact", at(0, 0, 0), at(500*ms, 500*ms, 500*ms), OK},
		{"inside the round trips", at(100*ms, 0, 100*ms), at(500*ms, 500*ms, 600*ms), OK},
		{"slow", at(0, 0, 0), at(480*ms, 500*ms, 500*ms), Error},
		{"fast", at(0, 0, 0), at(520*ms, 500*ms, 500*ms), Error},
		{"fast, but the round trips may account for it", at(0, 0, 20*ms), at(510*ms, 500*ms, 520*ms), OK},
		{"set back", at(0, 0, 0), at(-time.Hour, 500*ms, 500*ms), Error},
		{"ahead, as after a pause of this machine", at(2*time.Second, 0, 0), at(2500*ms, 500*ms, 500*ms), Warning},
		{"behind", at(-2*time.Second, 0, 0), at(-1500*ms, 500*ms, 500*ms), Warning},
		{"off, but the round trips may account for it", at(1100*ms, 0, 200*ms), at(1600*ms, 500*ms, 700*ms), OK},
	} {
		if f := judgeServerClock(c.a, c.b); f.Severity != c.want || (f.Severity != OK) != (f.Risk != "" && f.Remedy != "") {
			t.Errorf("%s: %+v", c.name, f)
		}
	}
}

func TestJudgeLatency(t *testing.T) {
	quick := slices.Repeat([]time.Duration{time.Millisecond}, 200)
	for _, c := range []struct {
		took []time.Duration
		want Severity
		says string
	}{
		{quick, OK, "TTLs from 20ms"},
		{append([]time.Duration{time.Hour}, quick[1:]...), OK, "TTLs from 20ms"}, // one of 200
		{slices.Repeat([]time.Duration{301 * time.Millisecond}, 5), Warning, "TTLs from 6.02s"},
	} {
		if f := judgeLatency(c.took); f.Severity != c.want || !strings.Contains(f.Found, c.says) || (f.Severity != OK) != (f.Risk != "" && f.Remedy != "") {
			t.Errorf("%+v, want %s and %q", f, c.want, c.says)
		}
	}
}

// TestFlaws: which versions lose locks.
func TestFlaws(t *testing.T) {
	for version, want := range map[string]string{
		"3.4.37": "3.4.38", "3.5.23": "", "3.6.0-rc.5": "3.6.5", "3.7.0": "", "unknown": "", "3.5.x": "",
	} {
		if flawed, sound := etcdFlaws.of(version); sound != want || flawed != (want != "") {
			t.Errorf("etcd %s: flawed: %t, sound from %q on; want %q", version, flawed, sound, want)
		}
	}
	for version, want := range map[string]string{"3.7.2": "a later minor version", "3.8.0": "3.8.5", "3.9.2": "", "3.9.3": "3.9.4", "": ""} {
		if flawed, sound := zooKeeperFlaws.of(version); sound != want || flawed != (want != "") {
			t.Errorf("ZooKeeper %s: flawed: %t, sound from %q on; want %q", version, flawed, sound, want)
		}
	}
}

// TestTransport: only a way that leaves the host needs to be encrypted.
func TestTransport(t *testing.T) {
	for raw, want := range map[string]Severity{
		"redis://": OK, "redis://[::1]": OK, "redis+unix:///run/r.sock": OK, "rediss://db.example.org": OK,
		"redis://db.example.org": Warning, "redis+sentinel://127.0.0.1:1,10.0.0.1:2/m": Warning,
		"etcd://127.0.0.1:2379,localhost:1": OK, "etcds://a": OK, "zk://a,b": Warning, "cell://127.0.0.1:7433,10.0.0.1:7433": Warning,
		"postgres:///d?host=/run/postgresql": OK, "postgres:///d?host=db": Warning,
	} {
		u, err := url.Parse(raw)
		testserver.Must(t, err)
		p, check := Patient{URL: u, Client: &holdfast.Client{}}, checks[u.Scheme][0]
		if u.Scheme == "postgres" {
			check = func(_ context.Context, p Patient) []Finding { return transport(p, false, "a remedy") }
		}
		if f := check(t.Context(), p); len(f) != 1 || f[0].Severity != want {
			t.Errorf("%s: %+v, want %s", raw, f, want)
		}
		if p.Client = nil; check(t.Context(), p) != nil {
			t.Errorf("%s: a finding although nothing was sent", raw)
		}
	}
}
