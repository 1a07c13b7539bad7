package sqltest

import (
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Settings lets clients use a store while their sessions have a setting: each works, or is refused by an error that
// contains what refused has for it.
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

// inTurn has two clients take turns, twice, because they expect a crowd the second time, and take names that some
// databases take for the same.
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

// JoinAndStep: who wants a place waits for a step that has locked the name's row, and sees what it has done (P7).
func JoinAndStep(t *testing.T, d driver.Driver, db *sql.DB) {
	t.Helper()
	const name = "joined"
	q := d.(driver.Queuer)
	collect(t, d, request(name, "one"))
	if _, err := q.Enqueue(t.Context(), request(name, "two")); !errors.Is(err, driver.ErrHeld) {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	defer tx.Rollback()
	Exec(t, tx, "SELECT 1 FROM holdfast_locks WHERE name = '"+name+"' FOR UPDATE")
	Exec(t, tx, "UPDATE holdfast_locks SET owner = '', expires = 0, taken = 0, crowd = 0 WHERE name = '"+name+"'")
	answer := make(chan error, 1)
	go func() {
		_, err := q.Enqueue(t.Context(), request(name, "three"))
		answer <- err
	}()
	select {
	case err = <-answer:
		t.Errorf("P7: a place was taken beside a step that has not ended: %v", err)
		return
	case <-time.After(100 * time.Millisecond):
	}
	Exec(t, tx, "DELETE FROM holdfast_places")
	must(t, tx.Commit(), <-answer)
}
