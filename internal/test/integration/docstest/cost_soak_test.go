//go:build soak && linux

package docstest

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/rueidis"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// figure is what the server counts, under the name that the tables have.
type figure struct {
	name  string
	value float64
}

// meter reads the counters of a server.
type meter struct {
	version string          // of the server, as the page has it
	url     string          // of the store; by way of the proxy, if there is one
	proxy   *chaos.Proxy    // nil: there are no connections
	read    func() []figure // the same names each time
}

// pairsMeasured is how many pairs and renewals are measured: enough for averages that repeat.
const pairsMeasured = 200

// TestCosts measures what locks cost the store, and how many connections they take, and compares
// that with the tables of the pages.
func TestCosts(t *testing.T) {
	for page, start := range map[string]func(*testing.T) meter{
		"cell": cellMeter, "etcd": etcdMeter, "files": filesMeter, "mysql": mysqlMeter, "postgresql": postgresMeter,
		"redis": redisMeter, "sqlite": sqliteMeter, "zookeeper": zooKeeperMeter,
	} {
		t.Run(page, func(t *testing.T) {
			m := start(t)
			if m.proxy != nil { // the others count what this process writes
				t.Parallel()
			}
			compare(t, page, measure(t, m))
		})
	}
}

// measure returns the page's tables.
func measure(t *testing.T, m meter) string {
	ctx := t.Context()
	open := func() *holdfast.Client {
		c, err := holdfast.Open(ctx, m.url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	must := func(l *holdfast.Lease, err error) *holdfast.Lease {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	long := &holdfast.Options{TTL: 10 * time.Minute}
	one := open()
	var idle, busy, waiting int
	if m.proxy != nil {
		idle = m.proxy.Connections()
	}
	var workers sync.WaitGroup
	for i := range 64 {
		workers.Go(func() {
			for j := range 4 {
				lease, err := one.Mutex(fmt.Sprintf("busy/%d/%d", i, j), long).Acquire(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				lease.Release()
			}
		})
	}
	workers.Wait()
	if m.proxy != nil {
		busy = m.proxy.Connections()
	}

	// A pair, and a renewal, of a name that nobody else wants.
	pair := one.Mutex("pair", long)
	for range 5 {
		if err := must(pair.Acquire(ctx)).Release(); err != nil {
			t.Fatal(err)
		}
	}
	before := m.read()
	for range pairsMeasured {
		if err := must(pair.Acquire(ctx)).Release(); err != nil {
			t.Fatal(err)
		}
	}
	pairs := per(before, m.read(), pairsMeasured)
	lease := must(pair.Acquire(ctx))
	before = m.read()
	for range pairsMeasured {
		if err := lease.Renew(ctx); err != nil {
			t.Fatal(err)
		}
	}
	renewals := per(before, m.read(), pairsMeasured)

	// Another client waits. The holder renews once in minutes, so what is counted is the waiter's.
	two := open()
	giveUp, cancel := context.WithCancel(ctx)
	done := make(chan error)
	go func() { _, err := two.Mutex("pair", long).Acquire(giveUp); done <- err }()
	for {
		info, err := one.Inspect(ctx, "pair")
		if err != nil {
			t.Fatal(err)
		}
		if len(info.Waiters) == 1 {
			break
		}
	}
	time.Sleep(1500 * time.Millisecond) // what precedes the steady state
	before = m.read()
	time.Sleep(waited)
	seconds := per(before, m.read(), waited.Seconds())
	if m.proxy != nil {
		waiting = m.proxy.Connections() - busy
	}
	cancel()
	if err := <-done; err == nil {
		t.Fatal("the name was held twice")
	}

	var b strings.Builder
	fmt.Fprintf(&b, "Measured with %s, by `TestCosts` in `internal/test/integration/docstest`. Nobody else wants the name, but in the last column.\n", m.version)
	if m.proxy != nil {
		fmt.Fprintf(&b, "Connections of a client: %d when it is opened, %d after 64 goroutines have used it at once, %d while one lock is awaited.\n",
			idle, busy, waiting)
	}
	b.WriteString("\n| costs the store | acquire and release | renewal | each second that a client waits for a name |\n|---|---|---|---|\n")
	for i, p := range pairs {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", p.name, short(p.value), short(renewals[i].value), short(seconds[i].value))
	}
	return b.String()
}

// per returns the differences of counters, divided.
func per(before, after []figure, n float64) []figure {
	out := make([]figure, len(before))
	for i, f := range before {
		out[i] = figure{f.name, (after[i].value - f.value) / n}
	}
	return out
}

// The markers between which a page has its tables.
const begin, end = "<!-- measured:begin -->\n", "<!-- measured:end -->\n"

// compare fails the test if a page's tables say something else than was measured. Words must be the
// same, and figures near.
func compare(t *testing.T, page, want string) {
	t.Helper()
	name := filepath.Join(root, pageOf(page))
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	have, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no %s… %s", name, begin, end)
	}
	if *update {
		if err := os.WriteFile(name, []byte(before+begin+want+end+after), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	same := number.ReplaceAllString(have, "#") == number.ReplaceAllString(want, "#") // and as many lines
	lines := strings.Split(want, "\n")
	for i, line := range strings.Split(have, "\n") {
		same = same && i < len(lines) && near(line, lines[i])
	}
	if !same {
		t.Errorf("%s has\n%s\nmeasured was\n%s\nto replace it: go test -tags soak ./internal/test/integration/docstest -run TestCosts -update", name, have, want)
	}
}

// minor matches a version down to what matters.
var minor = regexp.MustCompile(`\d+\.\d+`)

func redisMeter(t *testing.T) meter {
	server := testserver.StartRedis(t, testserver.RedisOptions{AOF: true})
	proxy := chaos.StartProxy(t, server.Addr)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr}, ForceSingleClient: true, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	info := func(section string) string {
		text, err := client.Do(t.Context(), client.B().Info().Section(section).Build()).ToString()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	calls := regexp.MustCompile(`cmdstat_([a-z|_-]+):calls=(\d+)`)
	return meter{
		version: "Redis " + minor.FindString(field(t, info("server"), `redis_version:(\S+)`)),
		url:     "redis://" + proxy.Addr, proxy: proxy,
		read: func() []figure {
			var scripts, all float64
			for _, m := range calls.FindAllStringSubmatch(info("commandstats"), -1) {
				n, _ := strconv.ParseFloat(m[2], 64)
				switch m[1] {
				case "info":
					continue
				case "eval", "evalsha":
					scripts += n
				}
				all += n
			}
			log, err := strconv.ParseFloat(field(t, info("persistence"), `aof_current_size:(\d+)`), 64)
			if err != nil {
				t.Fatal(err)
			}
			return []figure{{"commands, those inside scripts too", all}, {"scripts among them", scripts}, {"bytes of append-only file", log}}
		},
	}
}

// field returns what a pattern matches.
func field(t *testing.T, text, pattern string) string {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("%s does not match\n%s", pattern, text)
	}
	return m[1]
}

func etcdMeter(t *testing.T) meter {
	addr := testserver.StartEtcd(t, testserver.EtcdOptions{}).Addrs()
	proxy := chaos.StartProxy(t, addr)
	metrics := func() string {
		response, err := http.Get("http://" + addr + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	sum := func(text, pattern string) (sum float64) {
		for _, m := range regexp.MustCompile(`(?m)^`+pattern+` (\S+)$`).FindAllStringSubmatch(text, -1) {
			v, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += v
		}
		return sum
	}
	return meter{
		version: "etcd " + minor.FindString(field(t, metrics(), `etcd_server_version\{server_version="(\S+)"\}`)),
		url:     "etcd://" + proxy.Addr, proxy: proxy,
		read: func() []figure {
			text := metrics()
			return []figure{
				{"messages to the server", sum(text, `grpc_server_msg_received_total\{[^}]*\}`)},
				{"revisions", sum(text, `etcd_debugging_mvcc_current_revision`)},
				{"bytes of write-ahead log", sum(text, `etcd_disk_wal_write_bytes_total`)},
			}
		},
	}
}

// cellMeter asks for the cell's status, which changes nothing.
func cellMeter(t *testing.T) meter {
	addr := testserver.StartCell(t, testserver.CellOptions{}).Addrs()
	proxy := chaos.StartProxy(t, addr)
	c, err := cell.New(cell.Config{Members: []string{addr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return meter{
		version: "one member", url: "cell://" + proxy.Addr, proxy: proxy,
		read: func() []figure {
			var revision int64
			err := c.Do(t.Context(), true, func(ctx context.Context, m *cell.Member) error {
				r, err := m.Cell.Status(ctx, connect.NewRequest(&cellv1.StatusRequest{}))
				if err == nil {
					revision = r.Msg.Revision
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return []figure{{"changes of the log", float64(revision)}}
		},
	}
}

// zooKeeperMeter asks the admin server, because commands of four letters count as packets.
func zooKeeperMeter(t *testing.T) meter {
	server := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{Admin: true}).Members[0]
	proxy := chaos.StartProxy(t, server.Addr)
	number := func(command, name string) float64 {
		response, err := http.Get("http://" + server.Admin + "/commands/" + command)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.ParseFloat(field(t, string(text), `"`+name+`" : ([0-9.]+)`), 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return meter{
		version: "ZooKeeper " + minor.FindString(field(t, server.Ask("srvr"), `version: (\S+)`)),
		url:     "zk://" + proxy.Addr + "/costs", proxy: proxy,
		read: func() []figure {
			return []figure{
				{"requests to the server", number("monitor", "packets_received")},
				{"transactions", number("server_stats", "last_processed_zxid")},
			}
		},
	}
}

func postgresMeter(t *testing.T) meter {
	// Without the checkpoints and the vacuum of a server that has other things to do.
	server := testserver.StartPostgres(t, "log_statement=all", "autovacuum=off", "checkpoint_timeout=1h", "full_page_writes=off")
	proxy := chaos.StartProxy(t, server.Addr)
	db, err := sql.Open("pgx", server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if _, err := db.Exec("CREATE EXTENSION pgstattuple"); err != nil {
		t.Fatal(err)
	}
	one := func(query string) string { return scalar(t, db, query) }
	u, err := url.Parse(server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	u.Host = proxy.Addr
	ours := regexp.MustCompile(`LOG:  (?:statement|execute [^:]*): `)
	return meter{
		version: "PostgreSQL " + field(t, one("SHOW server_version"), `^(\d+)`),
		url:     u.String(), proxy: proxy,
		read: func() []figure {
			return []figure{
				{"statements", float64(len(ours.FindAllString(server.Log(), -1)))},
				{"bytes of write-ahead log", atof(t, one("SELECT pg_current_wal_insert_lsn() - '0/0'"))},
				{"dead rows left for vacuum", atof(t, one(
					"SELECT sum((pgstattuple(relid)).dead_tuple_count) FROM pg_stat_user_tables"))},
			}
		},
	}
}

func mysqlMeter(t *testing.T) meter {
	server := testserver.StartMariaDB(t)
	proxy := chaos.StartProxy(t, server.Addr)
	db, err := sql.Open("mysql", "root@tcp("+server.Addr+")/test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1)
	reads := 0
	status := func(name string) float64 {
		reads++
		var key, value string
		if err := db.QueryRow("SHOW GLOBAL STATUS LIKE '"+name+"'").Scan(&key, &value); err != nil {
			t.Fatal(err)
		}
		return atof(t, value)
	}
	u, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.Host = proxy.Addr
	return meter{
		version: "MariaDB " + minor.FindString(scalar(t, db, "SELECT version()")),
		url:     u.String(), proxy: proxy,
		read: func() []figure {
			questions := status("Questions") - float64(reads)
			rows := status("Handler_write") + status("Handler_update") + status("Handler_delete")
			return []figure{{"statements", questions}, {"rows written", rows}, {"bytes of redo log", status("Innodb_os_log_written")}}
		},
	}
}

// scalar returns the one value of a query.
func scalar(t *testing.T, db *sql.DB, query string) (value string) {
	t.Helper()
	if err := db.QueryRow(query).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

func atof(t *testing.T, text string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func sqliteMeter(t *testing.T) meter {
	file := filepath.Join(t.TempDir(), "locks.db")
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return meter{version: "SQLite " + minor.FindString(scalar(t, db, "SELECT sqlite_version()")), url: "sqlite://" + file, read: selfWrites(t)}
}

func filesMeter(t *testing.T) meter {
	return meter{version: "Linux", url: "file://" + t.TempDir() + "/locks", read: selfWrites(t)}
}

// selfWrites counts what this process writes. Go's own signals between threads are a few bytes of it.
func selfWrites(t *testing.T) func() []figure {
	return func() []figure {
		text, err := os.ReadFile("/proc/self/io")
		if err != nil {
			t.Fatal(err)
		}
		return []figure{{"bytes written", atof(t, field(t, string(text), `wchar: (\d+)`))}}
	}
}
