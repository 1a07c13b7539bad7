//go:build soak

package doctor

import (
	"database/sql"
	"net"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql" // for execute
	_ "github.com/jackc/pgx/v5/stdlib" // likewise

	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/sqllock"
)

// execute returns what runs statements in a database.
func execute(t *testing.T, driver, dsn string) func(texts ...string) {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
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
	do("GRANT SELECT ON "+prefix+"_meta TO "+clerk, "GRANT SELECT, INSERT, UPDATE, DELETE ON "+prefix+"_locks TO "+clerk)
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
	do("CREATE SCHEMA other; SET search_path = other; " + sqllock.Postgres.Schema("") + "; RESET search_path")
	for params, w := range map[string]want{
		"": {"schema", Warning, "in schema public; other schemas have tables of the same name: other"}, "&hf.tables=other.holdfast": {"schema", OK, "names schema other"},
		"&default_transaction_isolation=serializable": {"isolation", Note, "serializable"}, "&default_transaction_read_only=on": {"role", Error, "read-only"},
		"&synchronous_commit=off": {"durability", Warning, "synchronous_commit"},
	} {
		expect(t, examine(t, here+params), w)
	}
	do(sqllock.Postgres.Schema("flat"), "ALTER TABLE flat_locks SET UNLOGGED")
	expect(t, examine(t, here+"&hf.tables=flat"), want{"durability", Error, "unlogged"})
	expect(t, examine(t, testserver.StartPgbouncer(t, server, "session").URL("postgres")), want{"pooler", OK, "keeps its connection"})
	expect(t, examine(t, testserver.StartPgbouncer(t, server, "transaction").URL("postgres")), want{"pooler", Warning, "each transaction"}, want{"access", OK, ""})
	do("CREATE ROLE clerk LOGIN PASSWORD '"+password+"'", "REVOKE CREATE ON SCHEMA public FROM PUBLIC", sqllock.Postgres.Schema("given"))
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
	expect(t, examine(t, all+"&synchronous_commit=local"), want{"replication", Warning, "do not wait"})
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
			isolation := map[string]string{"MySQL": "transaction_isolation", "MariaDB": "tx_isolation"}[name]
			expect(t, examine(t, here), want{"role", OK, "this is " + name}, want{"tables", OK, ""}, want{"durability", OK, ""}, want{"replication", OK, "no replica reads"})
			expect(t, examine(t, here+"?"+isolation+"=%27SERIALIZABLE%27"), want{"isolation", Note, "SERIALIZABLE"})
			expect(t, examine(t, here+"?autocommit=0"), want{"role", Error, "autocommit"})
			examine(t, here+"?hf.tables=isam") // makes the tables
			do("ALTER TABLE isam_locks ENGINE = MyISAM", "SET GLOBAL innodb_flush_log_at_trx_commit = 2")
			expect(t, examine(t, here+"?hf.tables=isam"), want{"tables", Error, "isam_locks is MyISAM"}, want{"durability", Warning, "is 2"})
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
			await(t, "the replica", func() bool { return examine(t, here)["replication"].Severity == Warning })
			expect(t, examine(t, here), want{"replication", Warning, "replicas that follow: 1"})
			expect(t, examine(t, replica.URL()), want{"role", Error, "read-only"})
		})
	}
}

func TestEtcd(t *testing.T) {
	t.Parallel()
	e := testserver.StartEtcd(t, testserver.EtcdOptions{Members: 3})
	expect(t, examine(t, "etcd://"+e.Addrs()), want{"quorum", OK, "all 3 members"}, want{"version", OK, ""})
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
	url := "zk://" + z.Addrs() + "/app"
	expect(t, examine(t, url), want{"quorum", OK, ""}, want{"version", OK, ""}, want{"leader", Warning, "no server"}, want{"access", Note, "may delete"}, want{"lock", OK, ""})
	expect(t, examine(t, "zk://"+one.Addrs()+","+two.Addrs()+"/app"), want{"quorum", Error, "know nothing of each other"})
	expect(t, examine(t, "zk://"+two.Addrs()+"/app"), want{"sessions", Error, "from 40s to 50s; the TTL of locks is 30s"})
	expect(t, examine(t, "zk://"+two.Addrs()+"/app?hf.ttl=45s"), want{"sessions", OK, ""})
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
	expect(t, examine(t, url), want{"quorum", OK, ""}, want{"members", OK, "all 3"}, want{"version", OK, ""}, want{"lock", OK, ""})
	expect(t, examine(t, url+"?hf.ttl=1s"), want{"TTL", Error, "the TTL is 1s"})
	expect(t, examine(t, "cell://"+c.Members[0].Addr), want{"members", Warning, "URL names 1"})
	expect(t, examine(t, "cell://"+c.Addrs()+","+other.Addrs()), want{"one cell", Error, ""}, want{"space", Error, "reserve"})
	c.Members[2].Kill()
	expect(t, examine(t, url), want{"quorum", Warning, c.Members[2].Addr})
	c.Members[1].Kill()
	c.Members[0].Kill()
	expect(t, examine(t, url), want{"quorum", Error, "no member answers"})
}
