package testserver

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Postgres is a private PostgreSQL server of one test, with a directory of its
// own, on which anyone may log in as the superuser postgres without a password. What it
// has committed outlives Kill, but not the host. Its methods end the test on failure;
// call them on the test's own goroutine, one at a time.
type Postgres struct {
	*process
	Addr string // on the loopback interface, host:port; the same after Start
	Dir  string // of its data
}

// StartPostgres starts a server, which ends with the test, with settings such as
// "max_connections=20". It needs the package postgresql: see [Need].
func StartPostgres(t testing.TB, settings ...string) *Postgres {
	t.Helper()
	initdb := Need(t, "initdb", "postgresql")
	dir, attr := ordinary(t, "postgres")
	data := filepath.Join(dir, "data")
	prepareData(t, attr, data, initdb, "--pgdata", data, "--auth", "trust", "--username", "postgres", "--encoding", "UTF8", "--no-locale", "--no-sync")
	return servePostgres(t, data, attr, settings)
}

// Query runs statements as the superuser, and returns what they return: the values between bars.
func (p *Postgres) Query(statements ...string) string {
	p.t.Helper()
	args := []string{"--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--set", "ON_ERROR_STOP=1", "--dbname", p.URL("postgres")}
	for _, s := range statements {
		args = append(args, "--command", s)
	}
	out, err := exec.Command(Need(p.t, "psql", "postgresql"), args...).CombinedOutput()
	if err != nil {
		p.t.Fatalf("%q: %v\n%s", statements, err, out)
	}
	return strings.TrimSpace(string(out))
}

func servePostgres(t testing.TB, data string, attr *syscall.SysProcAttr, settings []string) *Postgres {
	t.Helper()
	program := Need(t, "postgres", "postgresql")
	p := &Postgres{process: &process{t: t, ready: "database system is ready to accept", attr: attr}, Dir: data}
	p.Addr = p.serve(func(port string) []string {
		args := []string{
			program, "-D", data, "-p", port, "-h", "127.0.0.1", "-k", filepath.Dir(data),
			"-c", "fsync=off", "-c", "max_connections=400", "-c", "shared_buffers=32MB", "-c", "max_wal_senders=4",
			"-c", "dynamic_shared_memory_type=mmap", // in its directory: a kill leaves nothing elsewhere
		}
		for _, s := range settings {
			args = append(args, "-c", s)
		}
		return args
	})
	return p
}

// URL returns the URL of a database.
func (p *Postgres) URL(database string) string { return postgresURL(p.Addr, database) }

func postgresURL(hosts, database string) string {
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Host: hosts, Path: "/" + database, RawQuery: "sslmode=disable"}
	return u.String()
}

// Stop shuts the server down, as an operator would, without waiting for its clients to leave.
func (p *Postgres) Stop() { p.end(syscall.SIGINT) }

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
	host, port, _ := net.SplitHostPort(server.Addr)
	config := filepath.Join(dir, "pgbouncer.ini")
	b.Addr = b.serve(func(own string) []string {
		lines := []string{
			"[databases]", fmt.Sprintf("postgres = host=%s port=%s user=postgres", host, port),
			"[pgbouncer]", "listen_addr = 127.0.0.1", "listen_port = " + own, "unix_socket_dir =", "auth_type = any",
			"pool_mode = " + mode, "ignore_startup_parameters = extra_float_digits",
		}
		if err := os.WriteFile(config, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return []string{program, config}
	})
	return b
}

// URL returns the URL of a database.
func (b *Pgbouncer) URL(database string) string {
	return postgresURL(b.Addr, database)
}
