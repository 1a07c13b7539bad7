package testserver

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Postgres is a PostgreSQL server with a directory of its own, on which anyone may log in as the superuser postgres
// without a password. What it has committed outlives Kill, but not the host.
type Postgres struct {
	*process
	Dir string // of its data
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
	p.serve(func(port string) []string {
		args := []string{
			program, "-D", data, "-p", port, "-h", "127.0.0.1", "-k", filepath.Dir(data),
			"-c", "fsync=off", "-c", "max_connections=1000", "-c", "shared_buffers=32MB", "-c", "max_wal_senders=4",
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

// Pgbouncer is a pgbouncer before a PostgreSQL server.
type Pgbouncer struct{ *process }

// StartPgbouncer starts a pooler, which ends with the test, in the mode "session" or
// "transaction". It needs the package pgbouncer: see [Need].
func StartPgbouncer(t testing.TB, server *Postgres, mode string) *Pgbouncer {
	t.Helper()
	program := Need(t, "pgbouncer", "pgbouncer")
	dir, attr := ordinary(t, "postgres")
	b := &Pgbouncer{&process{t: t, ready: "process up", attr: attr}}
	b.serve(func(own string) []string {
		return []string{program, writeLines(t, filepath.Join(dir, "pgbouncer.ini"),
			"[databases]", "postgres = host=127.0.0.1 port="+portOf(server.Addr)+" user=postgres",
			"[pgbouncer]", "listen_addr = 127.0.0.1", "listen_port = "+own, "unix_socket_dir =", "auth_type = any",
			"pool_mode = "+mode, "ignore_startup_parameters = extra_float_digits")}
	})
	return b
}

// URL returns the URL of a database.
func (b *Pgbouncer) URL(database string) string { return postgresURL(b.Addr, database) }

// Replica returns a server that follows this one, asynchronously. Its name is what
// synchronous_standby_names may have.
func (p *Postgres) Replica(name string) *Postgres {
	p.t.Helper()
	program := Need(p.t, "pg_basebackup", "postgresql")
	dir, attr := ordinary(p.t, "postgres")
	data := filepath.Join(dir, "data")
	prepare(p.t, attr, program, "--pgdata", data, "--dbname", p.URL("postgres")+"&application_name="+name,
		"--write-recovery-conf", "--checkpoint", "fast", "--no-sync")
	return servePostgres(p.t, data, attr, nil)
}

// PostgresCluster is a primary and two standbys, named one and two, which follow it.
type PostgresCluster struct {
	Primary  *Postgres    // now; it may have been killed
	Standbys [2]*Postgres // one and two; after Promote one of them is the primary
	t        testing.TB
	hosts    string // all three, the first primary first
}

// standbyNames are the names of the standbys.
var standbyNames = [2]string{"one", "two"}

// StartPostgresCluster starts the servers, which end with the test. Commits wait for the standbys
// whose names are given, as synchronous_standby_names has them; "": for none.
func StartPostgresCluster(t testing.TB, synchronous string) *PostgresCluster {
	t.Helper()
	c := &PostgresCluster{t: t, Primary: StartPostgres(t)}
	c.hosts = c.Primary.Addr
	for i, name := range standbyNames {
		c.Standbys[i] = c.Primary.Replica(name)
		c.hosts += "," + c.Standbys[i].Addr
	}
	if synchronous != "" {
		c.Primary.Query("ALTER SYSTEM SET synchronous_standby_names = '"+synchronous+"'", "SELECT pg_reload_conf()")
		await(c.t, "a synchronous standby", func() bool {
			return c.Primary.Query("SELECT count(*) > 0 FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')") == "t"
		})
	}
	c.CatchUp()
	return c
}

// URL returns the URL of a database, with all hosts.
func (c *PostgresCluster) URL(database string) string { return postgresURL(c.hosts, database) }

// CatchUp waits until the standbys that run have all that the primary has written by now.
func (c *PostgresCluster) CatchUp() {
	c.t.Helper()
	at := c.Primary.Query("SELECT pg_current_wal_lsn()")
	for _, s := range c.Standbys {
		if s != c.Primary {
			await(c.t, "the standbys to catch up", func() bool {
				return s.Query("SELECT coalesce(pg_last_wal_replay_lsn() >= '"+at+"', false)") == "t"
			})
		}
	}
}

// Promote makes a standby the primary, which the other one then follows. The old primary must have
// ended, or take no writes.
func (c *PostgresCluster) Promote(standby *Postgres) {
	c.t.Helper()
	standby.Query("SELECT pg_promote()")
	c.Primary = standby
	for i, s := range c.Standbys {
		if s != standby {
			s.Query("ALTER SYSTEM SET "+standby.following(standbyNames[i]), "SELECT pg_reload_conf()")
		}
	}
}

// Follow makes a server that has ended a standby of the primary, once it is started again. It must
// have nothing that the primary lacks.
func (c *PostgresCluster) Follow(old *Postgres) {
	c.t.Helper()
	settings, err := os.OpenFile(filepath.Join(old.Dir, "postgresql.auto.conf"), os.O_APPEND|os.O_WRONLY, 0)
	Must(c.t, err)
	_, err = settings.WriteString(c.Primary.following("old") + "\n")
	Must(c.t, err, settings.Close(), os.WriteFile(filepath.Join(old.Dir, "standby.signal"), nil, 0o644))
}

// following returns the setting of a standby that follows this server.
func (p *Postgres) following(name string) string {
	return fmt.Sprintf("primary_conninfo = 'host=127.0.0.1 port=%s user=postgres application_name=%s'", portOf(p.Addr), name)
}
