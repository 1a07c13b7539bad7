package pgconn

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/sqllock"
)

// TestSchema: roles with different search_paths do not make a store each, by accident.
func TestSchema(t *testing.T) {
	server := testserver.StartPostgres(t)
	admin := openDB(t, server)
	exec(t, admin, `CREATE SCHEMA one; CREATE SCHEMA "Two""2"; CREATE ROLE one LOGIN SUPERUSER; CREATE ROLE two LOGIN SUPERUSER;
		ALTER ROLE one SET search_path = one; ALTER ROLE two SET search_path = "Two""2"`)
	as := func(role, params string) string {
		return strings.Replace(server.URL("postgres"), "postgres@", role+"@", 1) + params
	}
	open := func(role, params string) (driver.Driver, error) {
		d, err := openURL(t.Context(), as(role, params))
		if err == nil {
			t.Cleanup(func() { d.Close() })
		}
		return d, err
	}
	one, err := open("one", "")
	must(t, err)
	if _, err := open("two", ""); err == nil {
		t.Error("P1: a second store was made for a role with another search_path")
	} else if !strings.Contains(err.Error(), "schema one has the table holdfast_meta") || !strings.Contains(err.Error(), "hf.tables=SCHEMA.holdfast") {
		t.Errorf("the error does not say where the other tables are: %v", err)
	}
	two, err := open("two", "&hf.tables=one.holdfast")
	must(t, err)
	if one.Caps().Store != two.Caps().Store {
		t.Errorf("a URL names the schema, and leads to the store %s, not %s", two.Caps().Store, one.Caps().Store)
	}

	// A role's search_path changes while its client runs.
	exec(t, admin, "ALTER ROLE one SET search_path = public")
	exec(t, admin, sqllock.Schema(sqllock.Postgres, ""))
	if _, err := one.Try(t.Context(), driver.Request{Name: "x", Owner: "one", TTL: 30 * time.Second}); err != nil {
		t.Fatal(err)
	}
	exec(t, admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'one'")
	for err = driver.ErrUncertain; errors.Is(err, driver.ErrUncertain); { // over a connection that ends as it is used
		_, err = one.Try(t.Context(), driver.Request{Name: "x", Owner: "later", TTL: 30 * time.Second})
	}
	if !errors.Is(err, driver.ErrHeld) {
		t.Errorf("P1: after a change of search_path a name is granted twice: %v", err)
	}
}

// TestSchemasTogether: of roles that come first at the same time, one makes the tables.
func TestSchemasTogether(t *testing.T) {
	server := testserver.StartPostgres(t)
	admin := openDB(t, server)
	const roles = 6
	for i := range roles {
		exec(t, admin, fmt.Sprintf("CREATE SCHEMA s%d; CREATE ROLE r%[1]d LOGIN SUPERUSER; ALTER ROLE r%[1]d SET search_path = s%[1]d", i))
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	opened := 0
	for i := range roles {
		wg.Go(func() {
			if d, err := openURL(t.Context(), strings.Replace(server.URL("postgres"), "postgres@", fmt.Sprintf("r%d@", i), 1)); err == nil {
				d.Close()
				mu.Lock()
				opened++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if opened != 1 {
		t.Errorf("%d roles have made a store each", opened)
	}
}
