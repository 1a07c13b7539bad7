package doctor

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite" // for sqlAdmin
)

func TestSQLite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "locks.db")
	here := "sqlite://" + file
	found := examine(t, here)
	expect(t, found, want{"place", Warning, os.TempDir()}) // so it is, for a test
	delete(found, "place")
	delete(found, "space") // depends on the machine
	allGood(t, found, "directory", "journal", "durability", "busy timeout", "tables", "neighbours", "log", "access")

	sqlAdmin(t, "sqlite", file)("CREATE TABLE orders (id INTEGER)")
	expect(t, examine(t, here), want{"neighbours", Note, "other tables in the file: 1"})
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	expect(t, examine(t, here), want{"directory", Error, "everybody"})
}

// TestSQLitePragmas looks at connections that are set up otherwise, as a program's own
// may be.
func TestSQLitePragmas(t *testing.T) {
	t.Parallel()
	for pragmas, w := range map[string]want{
		"?_pragma=journal_mode(delete)":     {"journal", Warning, "is delete"},
		"?_pragma=journal_mode(memory)":     {"journal", Error, "is memory"},
		"?_pragma=synchronous(normal)":      {"durability", Warning, "is NORMAL"},
		"?_pragma=synchronous(off)":         {"durability", Warning, "is OFF"},
		"?_pragma=busy_timeout(5000)":       {"busy timeout", Note, "is 5s"},
		"?_pragma=journal_mode(wal)":        {"journal", OK, "is wal"},
		"?_pragma=synchronous(extra)":       {"durability", OK, "is EXTRA"},
		"?_pragma=journal_mode(truncate)&x": {"journal", Warning, "is truncate"},
	} {
		db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "db")+pragmas)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		found := map[string]Finding{}
		for _, f := range sqlitePragmas(t.Context(), &database{DB: db}) {
			found[f.Check] = f
		}
		expect(t, found, w)
	}
}
