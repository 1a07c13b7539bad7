package testserver

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
)

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

// PostgresCluster is a primary and two standbys, named one and two, which follow it. Its methods
// end the test on failure; call them on the test's own goroutine, one at a time.
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
func (c *PostgresCluster) URL(database string) string {
	return postgresURL(c.hosts, database)
}

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
	if err != nil {
		c.t.Fatal(err)
	}
	defer settings.Close()
	if _, err := settings.WriteString(c.Primary.following("old") + "\n"); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(old.Dir, "standby.signal"), nil, 0o644); err != nil {
		c.t.Fatal(err)
	}
}

// following returns the setting of a standby that follows this server.
func (p *Postgres) following(name string) string {
	host, port, _ := net.SplitHostPort(p.Addr)
	return fmt.Sprintf("primary_conninfo = 'host=%s port=%s user=postgres application_name=%s'", host, port, name)
}
