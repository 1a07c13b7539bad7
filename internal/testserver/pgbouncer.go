package testserver

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Pgbouncer is a private pgbouncer before a PostgreSQL server, of one test. Its
// methods end the test on failure; call them on the test's own goroutine, one at a
// time.
type Pgbouncer struct {
	*process
	Addr string // on the loopback interface, host:port
}

// StartPgbouncer starts a pooler, which ends with the test, in the mode "session" or
// "transaction". It needs the package pgbouncer: see [Need].
func StartPgbouncer(t testing.TB, server *Postgres, mode string) *Pgbouncer {
	t.Helper()
	program := Need(t, "pgbouncer", "pgbouncer")
	dir, attr := ordinary(t, "postgres")
	b := &Pgbouncer{process: &process{t: t, ready: "process up", attr: attr}}
	t.Cleanup(b.Kill)
	host, port, _ := net.SplitHostPort(server.Addr)
	config := filepath.Join(dir, "pgbouncer.ini")
	b.args = []string{program, config}
	var err error
	const attempts = 5 // another program may take the port before the pooler does
	for range attempts {
		b.Addr = freeAddr(t)
		_, own, _ := net.SplitHostPort(b.Addr)
		lines := []string{
			"[databases]", fmt.Sprintf("postgres = host=%s port=%s user=postgres", host, port),
			"[pgbouncer]", "listen_addr = 127.0.0.1", "listen_port = " + own, "unix_socket_dir =", "auth_type = any",
			"pool_mode = " + mode, "ignore_startup_parameters = extra_float_digits",
		}
		if err := os.WriteFile(config, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err = b.start(); err == nil {
			return b
		}
	}
	t.Fatalf("pgbouncer did not start: %v", err)
	return nil
}

// URL returns the URL of a database.
func (b *Pgbouncer) URL(database string) string {
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Host: b.Addr, Path: "/" + database, RawQuery: "sslmode=disable"}
	return u.String()
}
