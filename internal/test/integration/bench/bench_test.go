//go:build soak

package bench

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

func TestMain(m *testing.M) {
	Child()
	os.Exit(m.Run())
}

// BenchmarkRedis measures each workload once and prints a table for it. The repetitions are
// inside of a measurement, so that in each repetition all peers are measured one by one.
func BenchmarkRedis(b *testing.B) {
	for _, w := range workloads {
		b.Run(w.name, func(b *testing.B) {
			run(b, "redis", w, func() (string, func()) {
				server := testserver.StartRedis(b, testserver.RedisOptions{})
				return server.Addr, server.Kill
			})
		})
	}
}

// BenchmarkEtcd is the same on one member that writes to the disk before it answers.
func BenchmarkEtcd(b *testing.B) {
	for _, w := range workloads {
		b.Run(w.name, func(b *testing.B) {
			run(b, "etcd", w, func() (string, func()) {
				server := testserver.StartEtcd(b, testserver.EtcdOptions{Sync: true})
				return server.Addrs(), server.Members[0].Kill
			})
		})
	}
}

// BenchmarkCell is the same on a cell of one member, beside locks in the etcd that it embeds.
func BenchmarkCell(b *testing.B) {
	for _, w := range workloads {
		b.Run(w.name, func(b *testing.B) {
			run(b, "cell", w, func() (string, func()) {
				m := testserver.StartCell(b, testserver.CellOptions{}).Members[0]
				return m.Addr + ";" + filepath.Join(m.Data, "etcd.sock"), m.Kill
			})
		})
	}
}

// BenchmarkPostgres is the same on a server that writes to the disk before it answers.
// Some peers have a connection for each goroutine.
func BenchmarkPostgres(b *testing.B) {
	for _, w := range workloads {
		b.Run(w.name, func(b *testing.B) {
			run(b, "postgres", w, func() (string, func()) {
				server := startPostgres(b)
				return server.Addr, server.Kill
			})
		})
	}
}

// startPostgres starts a server that counts statements.
func startPostgres(t testing.TB) *testserver.Postgres {
	server := testserver.StartPostgres(t, "fsync=on", "max_connections=4000",
		"shared_preload_libraries=pg_stat_statements")
	db, err := sql.Open("pgx", server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE EXTENSION pg_stat_statements"); err != nil {
		t.Fatal(err)
	}
	return server
}

// BenchmarkMariaDB is the same on MariaDB.
func BenchmarkMariaDB(b *testing.B) { benchmarkMySQL(b, "mariadb", startMariaDB) }

// BenchmarkMySQL is the same on MySQL 8.
func BenchmarkMySQL(b *testing.B) { benchmarkMySQL(b, "mysql", startMySQL) }

func benchmarkMySQL(b *testing.B, name string, start func(testing.TB) *testserver.MySQL) {
	for _, w := range workloads {
		b.Run(w.name, func(b *testing.B) {
			run(b, name, w, func() (string, func()) {
				server := start(b)
				return server.Addr, server.Kill
			})
		})
	}
}

func startMariaDB(t testing.TB) *testserver.MySQL {
	return testserver.StartMariaDB(t, "--innodb-flush-log-at-trx-commit=1", "--max-connections=4000")
}

func startMySQL(t testing.TB) *testserver.MySQL {
	return testserver.StartMySQL(t, "--innodb-flush-log-at-trx-commit=1", "--innodb-doublewrite=ON",
		"--max-connections=4000")
}

// BenchmarkSQLite measures processes that share one file.
func BenchmarkSQLite(b *testing.B) {
	for _, w := range workloads {
		if w.name == "wait" || w.name == "hold" {
			continue // there is no server to ask
		}
		b.Run(w.name, func(b *testing.B) {
			run(b, "sqlite", w, func() (string, func()) { return filepath.Join(b.TempDir(), "locks.db"), func() {} })
		})
	}
}

func run(b *testing.B, name string, w workload, start func() (string, func())) {
	set, err := settingsOf(os.Getenv, usual)
	if err != nil {
		b.Fatal(err)
	}
	s := stores[name]
	got, err := measure(s, w, set, b.TempDir(), start)
	if err != nil {
		b.Fatal(err)
	}
	beside := got.best(s, w.columns[0].of)
	if got[s.floor] != nil {
		beside = s.floor
	}
	if w.name == "wait" || w.name == "hold" {
		beside = ""
	}
	got.print(os.Stdout, s, w, beside)
	for _, p := range s.peers {
		for _, r := range got[p.name] {
			if r.Overlaps > 0 {
				b.Errorf("%s: %d holds were not alone", p.name, r.Overlaps)
			}
			if p.name == s.ours && (r.Stuck > 0 || r.Lost > 0) {
				b.Errorf("%s: %d workers stuck, %d holds lost", p.name, r.Stuck, r.Lost)
			}
		}
	}
}
