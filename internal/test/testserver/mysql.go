package testserver

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// MySQL is a server, MariaDB or MySQL 8, with a directory of its own, on which anyone may log in as root without a
// password; it has a database named test. What it has committed outlives Kill, but not the host: it believes that it
// syncs each commit, and does not. An argument such as
// TZ=Europe/Berlin gives it a wall clock of its own in that time zone, which needs gcc too.
type MySQL struct{ *process }

// mysqlPackage is the server's name in packages.txt; there is no Debian package of it.
const mysqlPackage = "mysql-8.0.15"

// mysqlDir is where scripts/install-mysql puts the server. MariaDB may have a program
// of the same name on PATH.
const mysqlDir = "/usr/local/lib/holdfast-" + mysqlPackage

// StartMySQL starts a MySQL 8 server, which ends with the test. It needs what
// scripts/install-mysql installs: see [Need].
func StartMySQL(t testing.TB, args ...string) *MySQL {
	t.Helper()
	program := Need(t, filepath.Join(mysqlDir, "bin", "mysqld"), mysqlPackage)
	dir, attr := ordinary(t, "nobody")
	data := filepath.Join(dir, "data")
	files := []string{
		program, "--no-defaults", "--datadir=" + data, "--lc-messages-dir=" + filepath.Join(mysqlDir, "share"),
		"--innodb-log-file-size=8M", "--innodb-doublewrite=OFF", "--skip-log-bin",
	}
	prepareData(t, attr, data, append(slices.Clone(files), "--initialize-insecure")...)
	Must(t, os.Remove(filepath.Join(data, "auto.cnf"))) // it has the UUID: each server chooses its own
	first := writeLines(t, filepath.Join(dir, "first.sql"), "CREATE DATABASE IF NOT EXISTS test;")
	return serveMySQL(t, attr, append(files, "--init-file="+first, "--pid-file="+filepath.Join(dir, "pid"), "--mysqlx=OFF"), dir, args)
}

// StartMariaDB starts a MariaDB server, which ends with the test. It needs the package
// mariadb-server: see [Need].
func StartMariaDB(t testing.TB, args ...string) *MySQL {
	t.Helper()
	program := Need(t, "mariadbd", "mariadb-server")
	install := Need(t, "mariadb-install-db", "mariadb-server")
	dir, attr := ordinary(t, "mysql")
	data := filepath.Join(dir, "data")
	prepareData(t, attr, data, install, "--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal", "--innodb-log-file-size=8M")
	return serveMySQL(t, attr, []string{program, "--no-defaults", "--datadir=" + data, "--innodb-log-file-size=8M"}, dir, args)
}

func serveMySQL(t testing.TB, attr *syscall.SysProcAttr, command []string, dir string, args []string) *MySQL {
	t.Helper()
	m := &MySQL{&process{t: t, ready: "ready for connections", attr: attr}}
	if i := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "TZ=") }); i >= 0 {
		m.Clock = newClock(t, dir)
		m.env = append(m.Clock.environ(), args[i])
		args = slices.Delete(slices.Clone(args), i, i+1)
	}
	m.serve(func(port string) []string {
		// A directory of its own for temporary tables: a server that starts removes what it finds there.
		return slices.Concat(command, []string{"--port=" + port, "--bind-address=127.0.0.1", "--socket=" + filepath.Join(dir, "s"), "--tmpdir=" + dir,
			"--innodb-flush-log-at-trx-commit=1", "--innodb-flush-method=nosync", "--innodb-buffer-pool-size=32M", "--max-connections=1000"}, args)
	})
	return m
}

// URL returns the URL of the database test.
func (m *MySQL) URL() string { return "mysql://root@" + m.Addr + "/test" }
