package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"

	_ "github.com/holdfastlock/holdfast/filelock" // file://
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
	if err != nil {
		t.Fatal(err)
	}
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

// own returns the path of a file in a directory that only this user may use.
func own(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// TestGood: of a store that is as it should be, every check says so.
func TestGood(t *testing.T) {
	t.Parallel()
	const sql = "transport role isolation durability replication access"
	for name, c := range map[string]struct {
		url    func(*testing.T) string
		checks string // which say that all is well
		others []want
	}{
		"Redis": {func(t *testing.T) string {
			s := testserver.StartRedis(t, testserver.RedisOptions{AOF: true, Args: []string{"--requirepass", password}})
			return "redis://:" + password + "@" + s.Addr + "?hf.prefix=billing/"
		}, "transport version role replicas eviction persistence access", []want{{"server clock", OK, "same rate"}}},
		"etcd": {func(t *testing.T) string {
			return "etcd://" + testserver.StartEtcd(t, testserver.EtcdOptions{}).Addrs()
		}, "transport quorum version", []want{{"store clock", OK, "cannot be set"}}},
		"ZooKeeper": {func(t *testing.T) string {
			return "zk://app:" + password + "@" + testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{Old: true}).Addrs() + "/app"
		}, "transport quorum leader access sessions", []want{{"store clock", OK, "cannot be set"}, {"version", Error, "3.8.0"}}},
		"PostgreSQL": {func(t *testing.T) string {
			return testserver.StartPostgres(t, "fsync=on").URL("postgres") + "&hf.prefix=billing/"
		}, sql + " pooler schema", []want{{"server clock", OK, "same rate"}}},
		"MariaDB": {func(t *testing.T) string {
			return testserver.StartMariaDB(t, inOrder...).URL()
		}, sql + " tables", []want{{"server clock", OK, "same rate"}}},
		"SQLite": {func(t *testing.T) string { return "sqlite://" + own(t, "locks.db") }, "directory journal durability tables access",
			[]want{{"place", Warning, os.TempDir()}}}, // so it is, for a test
		"files": {func(t *testing.T) string { return "file://" + own(t, "locks") }, "directory records", []want{{"place", Warning, os.TempDir()}}},
		"cell": {func(t *testing.T) string {
			return "cell://" + testserver.StartCell(t, testserver.CellOptions{}).Addrs() + "/app"
		}, "transport members version TTL space", []want{{"quorum", Note, "one member"}, {"store clock", OK, "cannot be set"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := examine(t, c.url(t))
			for check, says := range map[string]string{"clock": "clock", "latency": "renewals", "disk": "sync"} { // how they are is the machine's affair
				if f, ok := found[check]; ok || check != "disk" {
					expect(t, found, want{check, f.Severity, says})
					delete(found, check)
				}
			}
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
