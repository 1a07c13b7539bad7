package doctor

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

// TestRules: what each table makes of facts that differ from those of a store as it should be.
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
			{"version=4.0.14", "version", Error, "Redis 4.0.14"},
			{"version=5.0.0", "version", OK, "Redis 5.0.0"},
			{"version=unstable", "version", OK, "unstable"},
			{"redis_mode=sentinel", "role", Error, "this is a Sentinel"},
			{"redis_mode=sentinel", "replicas", "", ""},
			{"role=slave; master_host=h; master_port=1", "role", Error, "a replica of h:1"},
			{"cluster_enabled=1", "role", Error, "node of a Redis Cluster"},
			{"cluster_enabled=1; in cluster=yes", "role", OK, "this is a master"},
			{"follow=2; replicas=two", "replicas", Warning, "two, and locks do not wait"},
			{"follow=2; hf.replicas=1", "replicas", Warning, "others need not"},
			{"follow=2; hf.replicas=2", "replicas", OK, "any may take over"},
			{"follow=1; hf.replicas=2", "replicas", Error, "hf.replicas is 2"},
			{"min-replicas-to-write=1", "replicas", Error, "replicas: 0"},
			{"-role", "replicas", Note, "not seen"},
			{"maxmemory-policy=volatile-ttl", "eviction", Note, "maxmemory is not set"},
			{"maxmemory-policy=allkeys-lru; maxmemory=9", "eviction", Error, "maxmemory is set"},
			{"-maxmemory", "eviction", Note, "not seen"},
			{"appendfsync=everysec", "persistence", Warning, "appendfsync everysec"},
			{"-appendfsync", "persistence", Note, "not seen what reaches the disk"},
			{"-save; appendonly=no", "persistence", Note, "not seen what reaches the disk"},
			{"appendonly=no", "persistence", Warning, "nothing is written"},
			{"appendonly=no; save=3600", "persistence", Warning, "only snapshots (save 3600)"},
			{"-appendonly", "persistence", Note, "not seen"},
			{"denied=SET; why=NOPERM", "access", Error, `user "u" was refused: SET (NOPERM)`},
			{"trouble=OOM", "writes", Error, "refuses writes: OOM"},
			{"trouble=OOM", "access", "", ""},
			{"", "writes", "", ""},
		}},
		{"postgres", slices.Concat(postgresRules, databaseRules), facts{
			"server_version": "15.0", "backend": "1", "other backend": "2",
			"default_transaction_isolation": "read committed", "unlogged": "false", "synchronous_commit": "on", "replicas": "0",
			"may be synchronous": "0", "schema": "public", "other schemas": "", "prefix": "holdfast",
		}, []ruleCase{
			{"transaction_read_only=on", "role", Error, "standby"},
			{"other backend=1", "pooler", Warning, "each transaction"},
			{"-backend", "pooler", Note, "not seen"},
			{"default_transaction_isolation=serializable", "isolation", Note, "serializable"},
			{"unlogged=true", "durability", Error, "unlogged"},
			{"fsync=off", "durability", Warning, "fsync is off"},
			{"full_page_writes=off", "durability", Warning, "full_page_writes off"},
			{"synchronous_commit=off", "durability", Warning, "synchronous_commit"},
			{"-unlogged", "durability", Note, "not seen"},
			{"replicas=1", "replication", Warning, "do not wait"},
			{"synchronous_standby_names=a", "replication", Error, "none of those follows"},
			{"replicas=1; synchronous=1; may be synchronous=1; synchronous_standby_names=a", "replication", OK, "commits wait"},
			{"replicas=2; synchronous=1; may be synchronous=1; synchronous_standby_names=a", "replication", Note, "1 of the 2"},
			{"replicas=1; may be synchronous=1; synchronous_standby_names=a; synchronous_commit=local", "replication", Warning, `synchronous_commit "local"`},
			{"-replicas", "replication", Note, "not seen"},
			{"other schemas=shop", "schema", Warning, "in schema public; other schemas have tables of the same name: shop"},
			{"other schemas=shop; named schema=public", "schema", OK, "names schema public"},
			{"-schema", "schema", "", ""},
			{"refused=SELECT; why=w", "access", Error, "refused: SELECT (w)"},
		}},
		{"hosts", hostRules, facts{"takes writes": "a", "standby": "b", "roles": "r"}, []ruleCase{
			{"takes writes=a, b", "hosts", Error, "r"},
			{"-takes writes", "hosts", Error, "r"},
			{"not reached=c", "hosts", OK, "r"},
		}},
		{"mysql", mysqlRules, facts{
			"program": "MariaDB", "version": "10.11.6", "isolation": "READ-COMMITTED", "innodb_flush_log_at_trx_commit": "1", "other engines": "",
			"log_bin": "ON", "replicas": "0", "semi-synchronous": "OFF",
		}, []ruleCase{
			{"read_only=ON", "role", Error, "read-only"},
			{"autocommit=OFF", "role", Error, "autocommit"},
			{"other engines=x", "tables", Error, "InnoDB's: x"},
			{"isolation=SERIALIZABLE", "isolation", Note, "SERIALIZABLE"},
			{"innodb_flush_log_at_trx_commit=2", "durability", Warning, "is 2"},
			{"wsrep_cluster_size=3", "replication", Warning, "Galera"},
			{"-log_bin", "replication", OK, "no binary log"},
			{"binlog_format=STATEMENT", "replication", Warning, "STATEMENT"},
			{"replicas=1", "replication", Warning, "replicas that follow: 1"},
			{"replicas=1; semi-synchronous=ON; wait point=AFTER_SYNC; sync_binlog=1", "replication", OK, "commits wait"},
			{"replicas=1; semi-synchronous=ON; wait point=AFTER_COMMIT; sync_binlog=1", "replication", Warning, "AFTER_COMMIT"},
		}},
		{"sqlite", sqliteRules, facts{"journal_mode": "wal", "synchronous": "2", "locks": "ok", "places": "ok", "meta": "ok"}, []ruleCase{
			{"journal_mode=delete", "journal", Warning, "is delete"},
			{"journal_mode=memory", "journal", Error, "is memory"},
			{"synchronous=1", "durability", Warning, "is 1"},
			{"locks=torn", "tables", Error, "torn"},
			{"-meta", "tables", Error, "intact"},
		}},
		{"etcd", etcdRules, facts{"answers": "yes", "members": "3", "spare": "1"}, []ruleCase{
			{"silent=x", "quorum", Error, "no member answers for the cluster: x"},
			{"down=m1", "quorum", Warning, "m1"},
		}},
		{"zookeeper", slices.Concat(zooKeeperRules, trialRules), facts{
			"answers": "a, b, c", "leader": "a", "follower": "b, c", "servers": "3", "spare": "1",
			"shortest": "4s", "longest": "40s", "ttl": "30s", "anyone": "false",
		}, []ruleCase{
			{"-answers; why=x", "quorum", Error, "no server answers: x"},
			{"not serving=a, b, c", "quorum", Error, "have no leader"},
			{"standalone=a, b", "quorum", Error, "know nothing of each other"},
			{"down=c", "quorum", Warning, "c"},
			{"-leader", "leader", Warning, "no server of the URL says that it leads"},
			{"-leader; -follower; standalone=a; servers=1", "leader", OK, "a leads"},
			{"anyone=true", "access", Note, "may delete"},
			{"refused=x", "access", Error, "refused: x"},
			{"ttl=3s", "sessions", Error, "from 4s to 40s"},
			{"ttl=41s", "sessions", Warning, "from 4s to 40s"},
		}},
		{"cell", slices.Concat(cellQuorum, cellRules), facts{
			"answers": "a, b, c", "named": "3", "members": "3", "versions": "v1", "ttl": "30s", "shortest": "2s", "sync": "1ms", "slow": "20ms",
		}, []ruleCase{
			{"-answers; why=x", "quorum", Error, "x"},
			{"headless=b", "quorum", Error, "b know no leader"},
			{"down=c", "quorum", Warning, "c"},
			{"strangers=a, b", "one cell", Error, "different cells"},
			{"learning=d", "members", Warning, "d"},
			{"named=1", "members", Warning, "URL names 1"},
			{"versions=v1, v2", "version", Note, "v1, v2"},
			{"ttl=1s", "TTL", Error, "1s"},
			{"shortage=reserve", "space", Error, "reserve"},
			{"sync=21ms", "disk", Warning, "21ms"},
		}},
		{"versions", versionRules, facts{"versions": "1", "answers": "m"}, []ruleCase{{"flawed=m has version 1", "version", Error, "m has version 1"}, {"-versions", "version", Note, "not seen"}, {"-answers", "version", "", ""}}},
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

func TestJudgeClocks(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name             string
		mono, wall, host time.Duration
		year             int
		want             Severity
	}{
		{"all run alike", 250 * ms, 250 * ms, 251 * ms, 2026, OK},
		{"the host's stands", 250 * ms, 250 * ms, 0, 2026, Error},
		{"the host's is too fast", 250 * ms, 250 * ms, 500 * ms, 2026, Error},
		{"all stand", 0, 0, 0, 2026, Error},
		{"the wall clock is set", 250 * ms, -time.Hour, 250 * ms, 2026, Warning},
		{"the wall clock was never set", 250 * ms, 250 * ms, 250 * ms, 1970, Warning},
	} {
		f := judgeClocks(c.mono, c.wall, c.host, c.year)
		if f.Severity != c.want || (f.Severity != OK) != (f.Risk != "" && f.Remedy != "") {
			t.Errorf("%s: %+v, want %s", c.name, f, c.want)
		}
	}
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
	for _, c := range []struct {
		flaws *flaws
		sound map[string]string // "": the version is not flawed
	}{
		{etcdFlaws, map[string]string{
			"3.4.37": "3.4.38", "3.4.38": "", "3.5.2": "3.5.23", "3.5.23": "", "3.6.0-rc.5": "3.6.5", "3.6.5": "", "3.7.0": "", "unknown": "", "3.5.x": "",
		}},
		{zooKeeperFlaws, map[string]string{
			"3.5.8": "a later minor version", "3.7.2": "a later minor version", "3.8.0": "3.8.5", "3.8.5": "",
			"3.9.1": "3.9.4", "3.9.2": "", "3.9.3": "3.9.4", "3.9.5": "", "3.10.0": "", "": "",
		}},
	} {
		for version, want := range c.sound {
			if flawed, sound := c.flaws.of(version); sound != want || flawed != (want != "") {
				t.Errorf("%s: flawed: %t, sound from %q on; want %q", version, flawed, sound, want)
			}
		}
	}
}

// TestTransport: only a way that leaves the host needs to be encrypted.
func TestTransport(t *testing.T) {
	for raw, want := range map[string]Severity{
		"redis://": OK, "redis://localhost": OK, "redis://127.0.0.9:1": OK, "redis://[::1]": OK, "redis+unix:///run/r.sock": OK,
		"rediss://db.example.org": OK, "redis://db.example.org": Warning, "redis://:p@10.0.0.1": Warning, "redis+sentinel://127.0.0.1:1,10.0.0.1:2/m": Warning,
		"etcd://127.0.0.1:2379,localhost:1": OK, "etcd://a": Warning, "etcds://a": OK, "zk://a,b": Warning, "zks://a,b": OK,
		"cell://127.0.0.1:7433,10.0.0.1:7433": Warning, "cells://a:7433": OK,
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		p := Patient{URL: u, Client: &holdfast.Client{}}
		if f := checks[u.Scheme][0](t.Context(), p); len(f) != 1 || f[0].Severity != want {
			t.Errorf("%s: %+v, want %s", raw, f, want)
		}
		if p.Client = nil; checks[u.Scheme][0](t.Context(), p) != nil {
			t.Errorf("%s: a finding although nothing was sent", raw)
		}
	}
	for raw, want := range map[string]Severity{"postgres:///d?host=/run/postgresql": OK, "postgres:///d?host=db": Warning, "mysql://db/d": Warning} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if f := transport(Patient{URL: u, Client: &holdfast.Client{}}, false, "a remedy"); f[0].Severity != want {
			t.Errorf("%s: %+v, want %s", raw, f, want)
		}
	}
}

// TestForgetsVotes: a server of a Redlock that may forget is an error only where the URL says that it does not.
func TestForgetsVotes(t *testing.T) {
	for durable, want := range map[bool]Severity{true: Error, false: Note} {
		if f := forgetsVotes(Finding{"persistence", Warning, "x", "", ""}, durable); f.Severity != want || f.Risk == "" || f.Remedy == "" {
			t.Errorf("hf.durable %t: %+v", durable, f)
		}
	}
}
