//go:build soak && linux

package docstest

import (
	"database/sql"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := commandDir(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// The pages of the stores: what they show is run against a server of the test's own, and then
// everything that locks can do is done with the rights that the page has given.

func TestRedisPage(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t, testserver.RedisOptions{AOF: true})
	host, port, err := net.SplitHostPort(server.Addr)
	testserver.Must(t, err)
	newRunner(t, "redis-cli ", "redis-cli -h "+host+" -p "+port+" ", "redis.example.org:6379", server.Addr).page(pageOf("redis"))
	exercise(t, "redis://app:secret@"+server.Addr)
}

// TestValkey does all that locks can do on Valkey 9.
func TestValkey(t *testing.T) {
	t.Parallel()
	exercise(t, "redis://"+testserver.StartRedis(t, testserver.RedisOptions{Valkey: true}).Addr)
}

// TestManagedRedis does all that locks can do on servers without the commands that the documentation of a service
// says cannot be used there: the page says that those services work.
func TestManagedRedis(t *testing.T) {
	t.Parallel()
	for _, commands := range []string{
		"bgrewriteaof bgsave config debug migrate replicaof save slaveof shutdown sync",                  // Amazon ElastiCache
		"acl bgrewriteaof bgsave cluster config debug migrate module psync replicaof save shutdown sync", // Oracle OCI Cache
	} {
		var args []string
		for command := range strings.FieldsSeq(commands) {
			args = append(args, "--rename-command", command, "")
		}
		server := testserver.StartRedis(t, testserver.RedisOptions{Args: args})
		exercise(t, "redis://"+server.Addr)
		if said := server.Ask("SAVE"); !strings.Contains(said, "unknown command") {
			t.Errorf("the server has no restrictions: %s", said)
		}
	}
}

func TestCellPage(t *testing.T) {
	t.Parallel()
	addr := testserver.StartCell(t, testserver.CellOptions{}).Addrs()
	newRunner(t, "a.example.org,b.example.org,c.example.org", addr).page(pageOf("cell"))
	exercise(t, "cell://"+addr+"/billing")
}

// TestCellGuide runs the commands of the page about cells.
func TestCellGuide(t *testing.T) {
	t.Parallel()
	addr := testserver.StartCell(t, testserver.CellOptions{}).Addrs()
	newRunner(t, "holdfast serve\n", "holdfast serve --listen 127.0.0.1:0\n", "127.0.0.1:7433", addr).page("docs/cell.md")
}

func TestEtcdPage(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "etcdctl", "etcd-client")
	addr := testserver.StartEtcd(t, testserver.EtcdOptions{}).Addrs()
	newRunner(t, "etcdctl ", "ETCDCTL_API=3 etcdctl --endpoints="+addr+" ",
		"etcd1.example.org:2379,etcd2.example.org:2379,etcd3.example.org:2379", addr).page(pageOf("etcd"))
	exercise(t, "etcd://app:secret@"+addr+"/billing")
}

// TestZooKeeperPage runs zkCli.sh without its script: Debian has that in a package that starts a service.
func TestZooKeeperPage(t *testing.T) {
	t.Parallel()
	z := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{})
	newRunner(t, "zkCli.sh -server zk1.example.org:2181", strings.Join(z.Shell(), " "),
		"zk1.example.org:2181,zk2.example.org:2181,zk3.example.org:2181", z.Addrs()).page(pageOf("zookeeper"))
	exercise(t, "zk://app:secret@"+z.Addrs()+"/billing")
}

func TestPostgresPage(t *testing.T) {
	t.Parallel()
	server := testserver.StartPostgres(t)
	r := newRunner(t, "db.example.org/app?sslmode=verify-full", server.Addr+"/app?sslmode=disable")
	exec1(t, "pgx", server.URL("postgres"), "CREATE DATABASE app")
	r.sql = func(statements string) { exec1(t, "pgx", server.URL("app"), statements) }
	r.page(pageOf("postgresql"))
	exercise(t, "postgres://app:secret@"+server.Addr+"/app?sslmode=disable")
	exercise(t, "postgres://worker:secret@"+server.Addr+"/app?sslmode=disable&hf.tables=billing")
}

func TestMySQLPage(t *testing.T) {
	for name, start := range map[string]func(testing.TB, ...string) *testserver.MySQL{
		"MariaDB": testserver.StartMariaDB, "MySQL": testserver.StartMySQL,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := start(t)
			// As mariadb-secure-installation does: who logs in from this host would be nobody else.
			exec1(t, "mysql", "root@tcp("+server.Addr+")/", "DROP USER IF EXISTS ''@'localhost'")
			host, port, err := net.SplitHostPort(server.Addr)
			testserver.Must(t, err)
			r := newRunner(t, "db.example.org/app?tls=true&", server.Addr+"/app?", "db.example.org/app?tls=true", server.Addr+"/app",
				"mysql -h db.example.org", "mysql --protocol=tcp --default-auth=mysql_native_password -h "+host+" -P "+port)
			r.sql = func(statements string) {
				for s := range strings.SplitSeq(statements, ";\n") {
					if strings.TrimSpace(s) != "" {
						exec1(t, "mysql", "root@tcp("+server.Addr+")/", s)
					}
				}
			}
			r.page(pageOf("mysql"))
			exercise(t, "mysql://app:secret@"+server.Addr+"/app")
			exercise(t, "mysql://worker:secret@"+server.Addr+"/app?hf.tables=billing")
		})
	}
}

// exec1 runs SQL as the administrator.
func exec1(t *testing.T, driver, dsn, statements string) {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	testserver.Must(t, err)
	defer db.Close()
	if _, err := db.Exec(statements); err != nil {
		t.Fatalf("%v\n%s", err, statements)
	}
}

func TestSQLitePage(t *testing.T) {
	t.Parallel()
	r := newRunner(t)
	r.replace = strings.NewReplacer("/var/lib/app", r.dir)
	r.page(pageOf("sqlite"))
	exercise(t, "sqlite://"+r.dir+"/locks.db")
}

func TestFilesPage(t *testing.T) {
	t.Parallel()
	r := newRunner(t)
	group, err := exec.Command("id", "-gn").Output()
	testserver.Must(t, err)
	r.replace = strings.NewReplacer("/var/lib/app", r.dir, "sudo ", "", "-g operators", "-g "+strings.TrimSpace(string(group)))
	r.page(pageOf("files"))
	exercise(t, "file://"+r.dir+"/locks")
}

func TestMemoryPage(t *testing.T) {
	t.Parallel()
	newRunner(t).page(pageOf("memory"))
	exercise(t, "mem://exercise")
}

// TestCellLanguagesPage runs the program of the page, with the client that it tells to copy. Module interop runs
// the clients of all languages.
func TestCellLanguagesPage(t *testing.T) {
	t.Parallel()
	var replace []string
	for i, m := range testserver.StartCell(t, testserver.CellOptions{Members: 3}).Members {
		replace = append(replace, string("abc"[i])+".example.org:7433", m.Addr)
	}
	r := newRunner(t, replace...)
	testserver.Must(t, os.WriteFile(filepath.Join(r.dir, "holdfast_cell.py"), []byte(read(t, "docs/cell-clients/holdfast_cell.py")), 0o600))
	r.page("docs/cell-languages.md")
}

// TestCellAPIPage runs the calls of the page. They take longer than the TTL of its session, which the
// page's script keeps alive.
func TestCellAPIPage(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "curl", "curl")
	testserver.Need(t, "jq", "jq")
	addr := testserver.StartCell(t, testserver.CellOptions{}).Addrs()
	newRunner(t, "localhost:7433", addr).page("docs/cell-api.md")
}
