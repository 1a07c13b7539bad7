package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// LatePlace lets a waiter take its place while a release for which nobody waited yet is under way,
// between its read and its write. The release looks at the places once more, and that look fails.
// The waiter must get the name nevertheless, without asking (P7).
type LatePlace struct {
	// Open opens a driver with longPoll, so that nobody asks in time, and tables of this prefix.
	Open   func(t *testing.T, prefix string, poll time.Duration) driver.Driver
	Admin  *sql.DB
	Waits  string // reads the connections that wait for a row, and their statements
	Kill   string // ends one, in which {id} stands for it
	Writes string // how a statement begins that removes a place
	Fails  map[string]LateFailure
}

// LateFailure makes the look at the places of a name fail: it gets the connection that looks, and the
// transaction for which that waits.
type LateFailure func(ctx context.Context, l *LatePlace, id int64, tx *sql.Tx, name string) error

const latePrefix = "late"

// Killed ends the connection.
func Killed(ctx context.Context, l *LatePlace, id int64, _ *sql.Tx, _ string) error {
	_, err := l.Admin.ExecContext(ctx, strings.ReplaceAll(l.Kill, "{id}", fmt.Sprint(id)))
	return err
}

// Deadlocked makes a deadlock, of which the server ends the transaction that has written less.
func Deadlocked(ctx context.Context, _ *LatePlace, _ int64, tx *sql.Tx, name string) error {
	return lockRow(ctx, tx, "locks", "name = '"+name+"'")
}

// Test runs the test, once for each way to fail.
func (l *LatePlace) Test(t *testing.T) {
	releaser, waiter := l.Open(t, latePrefix, longPoll), l.Open(t, latePrefix, longPoll)
	if _, err := l.Admin.ExecContext(t.Context(), "CREATE TABLE "+latePrefix+"_weight (n BIGINT)"); err != nil {
		t.Fatal(err)
	}
	for how, fail := range l.Fails {
		t.Run(how, func(t *testing.T) {
			for !l.once(t, releaser, waiter, fail) {
				t.Log("a client has forgotten that others waited: once more")
			}
		})
	}
}

// once reports false if it took so long that a client forgot what it knew of the name, and so did not
// do what the test is about.
func (l *LatePlace) once(t *testing.T, releaser, waiter driver.Driver, fail LateFailure) bool {
	t.Helper()
	const remembered = 900 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), longPoll/2)
	defer cancel()
	name := fmt.Sprintf("late/%x", rand.Uint64())
	request := driver.Request{Name: name, Owner: "the waiter for " + name, TTL: time.Minute}
	g := l.awaitedBefore(ctx, t, releaser, waiter, name)
	known := time.Now()
	row, err := l.Admin.BeginTx(ctx, nil)
	must(t, err)
	defer row.Rollback()
	must(t, lockRow(ctx, row, "locks", "name = '"+name+"'"))
	released := make(chan error, 1)
	go func() { released <- releaser.Release(ctx, []driver.Grant{g})[0] }()
	l.awaitBlocked(ctx, t, "")
	if time.Since(known) > remembered {
		row.Rollback()
		<-released
		return false
	}

	// The release has read that nobody waits, and now wants to write that.
	reader := request
	reader.Owner, reader.Mode = "a reader of "+name, driver.Shared
	if _, err := waiter.Try(ctx, reader); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Try on a held name returned %v", err)
	}
	if _, err := waiter.(driver.Queuer).Enqueue(ctx, request); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Enqueue on a held name returned %v", err)
	}
	granted := make(chan answer, 1)
	go func() {
		g, err := waiter.(driver.Queuer).Wait(ctx, request)
		granted <- answer{g, err}
	}()
	place, err := l.Admin.BeginTx(ctx, nil)
	must(t, err)
	defer place.Rollback()
	for n := range 100 {
		_, err = place.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s_weight VALUES (%d)", latePrefix, n))
		must(t, err)
	}
	must(t, lockRow(ctx, place, "places", "name = '"+name+"' AND owner = '"+request.Owner+"'"))
	must(t, row.Commit())
	must(t, fail(ctx, l, l.awaitBlocked(ctx, t, l.Writes), place, name))
	must(t, place.Rollback())
	if err := <-released; err != nil {
		t.Errorf("a release that was done returned %v", err)
	}
	if a := <-granted; a.err != nil || a.Token <= g.Token {
		t.Errorf("P7: a place came while the name was released, and was not granted it: token %d after %d, %v",
			a.Token, g.Token, a.err)
	} else if err := waiter.Release(ctx, []driver.Grant{a.Grant})[0]; err != nil {
		t.Error(err)
	}
	return true
}

// awaitedBefore returns a hold of a name for which one has waited that has given up. Both clients know
// that the row still says that others may wait.
func (l *LatePlace) awaitedBefore(
	ctx context.Context, t *testing.T, holder, waiter driver.Driver, name string,
) driver.Grant {
	t.Helper()
	g, err := holder.Try(ctx, driver.Request{Name: name, Owner: "the holder of " + name, TTL: time.Minute})
	must(t, err)
	before := driver.Request{Name: name, Owner: "one that waited for " + name, TTL: time.Minute}
	if _, err := waiter.(driver.Queuer).Enqueue(ctx, before); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Enqueue on a held name returned %v", err)
	}
	must(t, waiter.Release(ctx, []driver.Grant{{Request: before}})[0])
	before.Owner = "another for " + name + fmt.Sprint(rand.Int64())
	if _, err := holder.(driver.Queuer).Enqueue(ctx, before); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Enqueue on a held name returned %v", err)
	}
	must(t, holder.Release(ctx, []driver.Grant{{Request: before}})[0])
	return g
}

// lockRow locks a row of one of the tables.
func lockRow(ctx context.Context, tx *sql.Tx, table, where string) error {
	var n int
	return tx.QueryRowContext(ctx, "SELECT 1 FROM "+latePrefix+"_"+table+" WHERE "+where+" FOR UPDATE").Scan(&n)
}

// innodbLooks is a little more than the time for which InnoDB answers what it found when it was asked
// before, and beside questions that come more often it would not look again.
const innodbLooks = 120 * time.Millisecond

// awaitBlocked returns the connection that waits for a row in a statement that begins like this.
func (l *LatePlace) awaitBlocked(ctx context.Context, t *testing.T, begins string) int64 {
	t.Helper()
	for {
		time.Sleep(innodbLooks)
		var id int64
		var text string
		err := l.Admin.QueryRowContext(ctx, l.Waits).Scan(&id, &text)
		switch {
		case err == nil && strings.HasPrefix(text, begins):
			return id
		case err != nil && err != sql.ErrNoRows:
			t.Fatalf("nobody waits for the row: %v", err)
		}
	}
}
