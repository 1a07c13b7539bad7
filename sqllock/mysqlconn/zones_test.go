//go:build soak

package mysqlconn

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/sqllock"
)

// TestLocalTime: the server's local time jumps while a statement is under way, when
// summer time begins and when it ends. The time that holds are judged by does not.
func TestLocalTime(t *testing.T) {
	utc := func(month time.Month, day, hour, minute int) time.Time {
		return time.Date(2027, month, day, hour, minute, 0, 0, time.UTC)
	}
	for _, c := range []struct {
		name    string
		start   func(testing.TB, ...string) *testserver.MySQL
		zone    string
		changes []time.Time
	}{
		{"MariaDB", testserver.StartMariaDB, "Europe/Berlin", []time.Time{utc(3, 28, 1, 0), utc(10, 31, 1, 0)}},
		{"MySQL", testserver.StartMySQL, "Australia/Lord_Howe", []time.Time{utc(4, 3, 15, 0), utc(10, 2, 15, 30)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := c.start(t, "TZ="+c.zone)
			for _, change := range c.changes {
				t.Run(change.Month().String(), func(t *testing.T) {
					server.Clock.Set(time.Until(change) - 20*time.Second)
					localTimeJumps(t, server, change)
				})
			}
		})
	}
}

func localTimeJumps(t *testing.T, server *testserver.MySQL, change time.Time) {
	ctx, db := t.Context(), openDB(t, server, "")
	a, b := dial(t, server, nil), dial(t, server, nil)
	defer a.Close()
	defer b.Close()
	held := driver.Request{Name: change.String(), Owner: "a of " + change.String(), TTL: 59 * time.Second}
	g, err := a.Try(ctx, held)
	must(t, err)

	// Somebody has the row for a moment, and a statement of b's waits for it.
	tx, err := db.BeginTx(ctx, nil)
	must(t, err)
	var version int64
	must(t, tx.QueryRow("SELECT version FROM holdfast_locks WHERE name = ? FOR UPDATE", held.Name).Scan(&version))
	answer := make(chan error, 1)
	go func() {
		other := held
		other.Owner = "b of " + change.String()
		_, err := b.Try(ctx, other)
		answer <- err
	}()
	// So does one that reads the time. (SLEEP would wait by the clock that is set.)
	at := make(chan time.Time, 1)
	go func() {
		var us int64
		if err := db.QueryRowContext(ctx, "SELECT "+sqllock.Now(sqllock.MySQL)+" FROM holdfast_locks WHERE name = ? FOR UPDATE", held.Name).Scan(&us); err != nil {
			t.Error(err)
		}
		at <- time.UnixMicro(us).UTC()
	}()
	awaitValue(t, db, "two statements wait", "SELECT COUNT(*) > 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'")
	server.Clock.Set(time.Until(change) + time.Second)
	awaitValue(t, db, "local time has jumped", "SELECT UTC_TIMESTAMP(6) > ?", change.Format(time.DateTime))
	must(t, tx.Rollback())
	if at := <-at; at.Before(change) || at.After(change.Add(time.Minute)) {
		t.Errorf("a statement that was under way when local time jumped, at %v, read the time %v", change, at)
	}
	if err := <-answer; !errors.Is(err, driver.ErrHeld) {
		t.Errorf("P1: a name that is held for 59 s was asked for when local time jumped: %v", err)
	}
	if r := a.Renew(ctx, []driver.Grant{g})[0]; r.Err != nil {
		t.Errorf("P2: the holder is told at its renewal: %v", r.Err)
	}
	a.Release(ctx, []driver.Grant{g})
}

// awaitValue waits until a query says yes.
func awaitValue(t *testing.T, db *sql.DB, what, query string, args ...any) {
	t.Helper()
	// InnoDB shows what it has shown before to those who ask more often.
	tick := time.Tick(150 * time.Millisecond)
	for range 200 {
		<-tick
		var yes bool
		must(t, db.QueryRowContext(t.Context(), query, args...).Scan(&yes))
		if yes {
			return
		}
	}
	t.Fatalf("it did not come about that %s", what)
}
