package sqltest

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Settings checks a store for settings of a client's sessions. With those of works two clients take turns, and names
// that some collations fold together are different locks (P1). With those of refused a client gets an error that
// contains the words beside the setting.
func Settings(t *testing.T, open func(setting string) (driver.Driver, error), works []string, refused map[string]string) {
	t.Helper()
	for _, setting := range works {
		t.Run(setting, func(t *testing.T) {
			a, err := open(setting)
			must(t, err)
			defer a.Close()
			b, err := open(setting)
			must(t, err)
			defer b.Close()
			inTurn(t, setting, a, b)
		})
	}
	for setting, want := range refused {
		t.Run(setting, func(t *testing.T) {
			d, err := open(setting)
			if err == nil {
				defer d.Close()
				_, err = d.Try(t.Context(), request(setting, "one"))
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("a client is told %v; %q is wanted", err, want)
			}
		})
	}
}

func request(name, owner string) driver.Request {
	return driver.Request{Name: name, Owner: fmt.Sprintf("%.32x", sha256.Sum256([]byte(name+owner))), TTL: 20 * time.Second, Note: "a \"note\" \\ of\n'日本' 😀"}
}

// inTurn lets two clients take turns on a name, and one take names that some collations fold together. The clients take
// turns twice, because after the first time they expect others to wait, and ask for a place at once.
func inTurn(t *testing.T, name string, a, b driver.Driver) {
	owners := func(round string) (all []driver.Request) {
		for _, owner := range []string{" one", " two", " three"} {
			all = append(all, request(name, owner+round))
		}
		return all
	}
	for _, round := range []string{"", " again"} {
		all, drivers := owners(round), []driver.Driver{a, b, a}
		g := collect(t, a, all[0])
		for i, r := range all[1:] {
			if _, err := drivers[i+1].(driver.Queuer).Enqueue(t.Context(), r); !errors.Is(err, driver.ErrHeld) {
				t.Fatalf("P1: a name is held, and a waiter is told %v", err)
			}
		}
		other := request(name, " of another kind")
		other.Mode, other.Slots, other.Permits = driver.Slot, 2, 1
		if _, err := b.(driver.Queuer).Enqueue(t.Context(), other); !errors.Is(err, driver.ErrMismatch) {
			t.Fatalf("P10: others wait for a mutex, and one that wants a semaphore is told %v", err)
		}
		for i, r := range all {
			if i > 0 {
				next := collect(t, drivers[i], r)
				if next.Token <= g.Token {
					t.Errorf("P3: token %d after %d", next.Token, g.Token)
				}
				g = next
			}
			must(t, drivers[i].Renew(t.Context(), []driver.Grant{g})[0].Err)
			info, err := b.(driver.Operator).Inspect(t.Context(), name)
			if must(t, err); len(info.Holders) != 1 || info.Holders[0].Note != r.Note || info.Holders[0].Token != g.Token {
				t.Errorf("the hold %+v is shown as %+v", g, info.Holders)
			}
			must(t, drivers[i].Release(t.Context(), []driver.Grant{g})...)
		}
	}
	var grants []driver.Grant
	for _, other := range []string{"a", "A", "a ", "a\t", "ä", "a\u0308", "ss", "ß", "é", "e\u0301", "ﬀ", "ff", strings.Repeat("😀", 127), strings.Repeat("😀", 127) + "a"} {
		g, err := a.Try(t.Context(), request(other, name))
		if err != nil {
			t.Errorf("P1: %q is taken for another name: %v", other, err)
			continue
		}
		grants = append(grants, g)
	}
	must(t, a.Release(t.Context(), grants)...)
}

// collect has a driver wait until it has the hold.
func collect(t *testing.T, d driver.Driver, r driver.Request) driver.Grant {
	t.Helper()
	q := d.(driver.Queuer)
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		g, err := q.Enqueue(t.Context(), r)
		if errors.Is(err, driver.ErrHeld) {
			g, err = q.Wait(t.Context(), r)
		}
		if err == nil {
			return g
		}
		if !errors.Is(err, driver.ErrHeld) {
			t.Fatal(err)
		}
	}
	t.Fatal("P7: a waiter is not granted the name")
	return driver.Grant{}
}

// BesideStep checks that a release, and a request for a place, wait for the end of a step that has locked the name's row,
// and then find what the step has written (P1, P7). The test writes what the steps do: the first gives the hold to another
// owner, the second ends it. Places that nobody confirms are removed while the name is held (P9).
func BesideStep(t *testing.T, d driver.Driver, db *sql.DB) {
	t.Helper()
	const name = "beside"
	q := d.(driver.Queuer)
	g := collect(t, d, request(name, "one"))
	for _, owner := range []string{"two", "four"} { // after the second the client expects a crowd
		if _, err := q.Enqueue(t.Context(), request(name, owner)); !errors.Is(err, driver.ErrHeld) {
			t.Fatal(err)
		}
	}
	beside := func(set string, do func() error) (owner string) {
		t.Helper()
		tx, err := db.BeginTx(t.Context(), nil)
		must(t, err)
		defer tx.Rollback()
		Exec(t, tx, "SELECT 1 FROM holdfast_locks WHERE name = '"+name+"' FOR UPDATE")
		Exec(t, tx, "UPDATE holdfast_locks SET "+set+" WHERE name = '"+name+"'")
		answer := make(chan error, 1)
		go func() { answer <- do() }()
		select {
		case err = <-answer:
			t.Fatalf("%s: a client did not wait for a step: %v", set, err)
		case <-time.After(100 * time.Millisecond):
		}
		must(t, tx.Commit(), <-answer)
		must(t, db.QueryRowContext(t.Context(), "SELECT owner FROM holdfast_locks WHERE name = '"+name+"'").Scan(&owner))
		return owner
	}
	if owner := beside("owner = 'other'", func() error {
		if err := d.Release(t.Context(), []driver.Grant{g})[0]; !errors.Is(err, driver.ErrNotHeld) {
			return fmt.Errorf("the release of what another holds by now returned %v", err)
		}
		return nil
	}); owner != "other" {
		t.Errorf("P1: the hold of another is %q's", owner)
	}
	var places int
	if must(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM holdfast_places").Scan(&places)); places != 2 {
		t.Errorf("P8: a release of what another holds by now has left %d places of 2", places)
	}
	Exec(t, db, "UPDATE holdfast_places SET ends = 1")
	must(t, d.(interface{ Clean(context.Context) error }).Clean(t.Context()),
		db.QueryRowContext(t.Context(), "SELECT count(*) FROM holdfast_places").Scan(&places))
	if places > 0 {
		t.Errorf("P9: the name is held, and %d places stay that nobody has confirmed", places)
	}
	beside("owner = '', expires = 0, taken = 0, crowd = 0", func() error {
		_, err := q.Enqueue(t.Context(), request(name, "three"))
		return err
	})
}
