package testserver

import (
	"net"
	"net/url"
	"path/filepath"
	"syscall"
	"testing"
)

// MariaDB is a private MariaDB server of one test, with a directory of its own, on
// which everybody may log in as root without a password; it has a database named
// test. What it has committed outlives Kill, but not the host. Its methods end the
// test on failure; call them on the test's own goroutine, one at a time.
type MariaDB struct {
	*process
	Addr string // on the loopback interface, host:port; the same after Start
}

// StartMariaDB starts a server, which ends with the test. It needs the package
// mariadb-server: see [Need].
func StartMariaDB(t testing.TB, args ...string) *MariaDB {
	t.Helper()
	program := Need(t, "mariadbd", "mariadb-server")
	install := Need(t, "mariadb-install-db", "mariadb-server")
	dir, attr := ordinary(t, "mysql")
	data := filepath.Join(dir, "data")
	prepare(t, attr, install, "--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal", "--innodb-log-file-size=8M")
	m := &MariaDB{process: &process{t: t, ready: "ready for connections", attr: attr}}
	t.Cleanup(m.Kill)
	var err error
	const attempts = 5 // another program may take the port before the server does
	for range attempts {
		m.Addr = freeAddr(t)
		_, port, _ := net.SplitHostPort(m.Addr)
		m.args = append([]string{
			program, "--no-defaults", "--datadir=" + data, "--port=" + port, "--bind-address=127.0.0.1", "--socket=" + filepath.Join(dir, "s"),
			"--innodb-flush-log-at-trx-commit=2", "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=8M", "--max-connections=400",
		}, args...)
		if err = m.start(); err == nil {
			return m
		}
	}
	t.Fatalf("mariadbd did not start: %v", err)
	return nil
}

// URL returns the URL of the database test.
func (m *MariaDB) URL() string {
	u := url.URL{Scheme: "mysql", User: url.User("root"), Host: m.Addr, Path: "/test"}
	return u.String()
}

// Stop ends the server as an operator would.
func (m *MariaDB) Stop() { m.end(syscall.SIGTERM) }
