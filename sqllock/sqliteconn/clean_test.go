//go:build soak

package sqliteconn

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// TestCleanMany: the rows of thousands of names that nobody uses are removed, and those
// that are held, closed or were used not long ago stay.
func TestCleanMany(t *testing.T) {
	db := openDB(t, filepath.Join(t.TempDir(), "locks.db"))
	d, err := New(t.Context(), db, nil)
	must(t, err)
	defer d.Close()
	for _, name := range []string{"held", "closed", "used"} {
		r := driver.Request{Name: name, Owner: "owner of " + name, TTL: 24 * time.Hour}
		if name == "closed" {
			r.MinHold = 24 * time.Hour
		}
		g, err := d.Try(t.Context(), r)
		must(t, err)
		if name == "held" {
			continue
		}
		must(t, d.Release(t.Context(), []driver.Grant{g})[0])
	}
	old := time.Now().Add(-2 * time.Hour).UnixMicro()
	if _, err := db.Exec("UPDATE holdfast_locks SET version = ? WHERE name <> 'used'", old); err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin()
	must(t, err)
	for i := range 2000 {
		owner, ended := "", int64(0)
		if i%2 == 0 { // nobody has used the name since it expired
			owner, ended = "gone", old
		}
		if _, err := tx.Exec("INSERT INTO holdfast_locks VALUES (?, ?, ?, ?, '', 0, 0, '', 0, ?, '', 0)", fmt.Sprintf("order/%06d", i), old, old, owner, ended); err != nil {
			t.Fatal(err)
		}
	}
	must(t, tx.Commit())
	must(t, d.(interface{ Clean(context.Context) error }).Clean(t.Context()))
	var names string
	if err := db.QueryRow("SELECT group_concat(name, ' ') FROM (SELECT name FROM holdfast_locks ORDER BY name)").Scan(&names); err != nil || names != "closed held used" {
		t.Errorf("P9: after cleaning there are the rows %.200q, %v", names, err)
	}
}
