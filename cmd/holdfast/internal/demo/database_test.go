package demo

import (
	"net/url"
	"slices"
	"testing"

	_ "github.com/holdfastlock/holdfast/sqllock/mysqlconn"  // mysql://
	_ "github.com/holdfastlock/holdfast/sqllock/pgconn"     // postgres://
	_ "github.com/holdfastlock/holdfast/sqllock/sqliteconn" // sqlite://
)

// TestDatabaseNames: each run has a database of its own.
func TestDatabaseNames(t *testing.T) {
	d := &demonstration{dir: t.TempDir(), id: "ABCDEFGH", Options: Options{Store: "file:///locks"}}
	var seen []string
	for range 2 {
		d.runs++
		rawURL, _, err := d.createDatabase(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(rawURL)
		if err != nil || u.Scheme != "file" || slices.Contains(seen, rawURL) {
			t.Errorf("database %d is %s, %v", d.runs, rawURL, err)
		}
		seen = append(seen, rawURL)
	}
}
