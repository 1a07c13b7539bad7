package sqliteconn

import (
	"database/sql"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/sqltest"
)

func TestParseRefuses(t *testing.T) {
	for raw, says := range map[string]string{
		"sqlite:///a.db?mode=ro":    `"mode"`,
		"sqlite://host/a.db":        "three slashes",
		"sqlite:a.db":               "three slashes",
		"sqlite:///":                "three slashes",
		"sqlite://u:s3cret@/a.db":   "three slashes",
		"sqlite:///a.db?hf.table=x": `"hf.table"`,
	} {
		u, err := url.Parse(raw)
		must(t, err)
		if _, _, err := OpenPool(u); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: error %v does not say %q, or shows a password", raw, err, says)
		}
	}
}

// TestAwkwardFile: what means something in a URL is part of a file's name.
func TestAwkwardFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a?b #c%20&_pragma=x.db")
	must(t, dial(t, file, nil).Close())
	if found, _ := filepath.Glob(filepath.Join(filepath.Dir(file), "*.db")); len(found) != 1 || found[0] != file {
		t.Errorf("the files are %q", found)
	}
}

// TestPending: a hold that is not committed is never reported as held.
func TestPending(t *testing.T) {
	for _, begin := range []string{"BEGIN", "BEGIN IMMEDIATE", "SAVEPOINT theirs"} {
		t.Run(begin, func(t *testing.T) {
			dsn := DSN(filepath.Join(t.TempDir(), "locks.db"))
			open := func(connections int) (*sql.DB, driver.Driver) {
				db, err := sql.Open("sqlite", dsn)
				must(t, err)
				t.Cleanup(func() { db.Close() })
				db.SetMaxOpenConns(connections)
				d, err := New(t.Context(), db, nil)
				must(t, err)
				t.Cleanup(func() { d.Close() })
				return db, d
			}
			db, d := open(1)
			_, other := open(2)
			sqltest.Pending(t, db, d, other, false, func(conn *sql.Conn) {
				exec(t, conn, begin)
			})
		})
	}
}

// TestReadOnlyConnection: a connection that takes no writes is left, and another one serves.
func TestReadOnlyConnection(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	db, err := sql.Open("sqlite", DSN(file))
	must(t, err)
	defer db.Close()
	db.SetMaxOpenConns(1)
	d, err := New(t.Context(), db, nil)
	must(t, err)
	defer d.Close()
	other := dial(t, file, nil)
	defer other.Close()
	sqltest.Pending(t, db, d, other, true, func(conn *sql.Conn) {
		exec(t, conn, "PRAGMA query_only = 1")
	})
}
