//go:build soak

package mysqlconn

import (
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestQueuesAreReadInMemory: a queue is read without a temporary table on the server's disk, which took many times
// as long as all else that a change of owner does.
func TestQueuesAreReadInMemory(t *testing.T) {
	u, err := url.Parse(testserver.StartMariaDB(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	d, err := open(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	db, _, err := OpenPool(u)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tables := func() (n int) {
		t.Helper()
		var name string
		if err := db.QueryRow("SHOW GLOBAL STATUS LIKE 'Created_tmp_disk_tables'").Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	ask := func(owner string) error {
		_, err := d.(driver.Queuer).Enqueue(t.Context(), driver.Request{Name: "n", Owner: owner, TTL: time.Minute})
		return err
	}
	if err := ask("holder"); err != nil {
		t.Fatal(err)
	}
	before := tables()
	for range 2 { // a place is taken, and confirmed
		for _, owner := range []string{"a", "b", "c"} {
			if err := ask(owner); !errors.Is(err, driver.ErrHeld) {
				t.Fatal(err)
			}
		}
	}
	g := driver.Grant{Request: driver.Request{Name: "n", Owner: "holder"}, Token: 1}
	if err := d.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
		t.Fatal(err)
	}
	if n := tables() - before; n > 0 {
		t.Errorf("%d tables were made on the disk", n)
	}
}
