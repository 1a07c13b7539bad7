package sqliteconn

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/sqltest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

var (
	must    = testserver.Must // ends the test at an error
	exec    = sqltest.Exec
	openURL = sqltest.OpenURL
)

// TestReadOnly: what cannot be written is an error that says so, at once.
func TestReadOnly(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	must(t, dial(t, file, nil).Close())
	db, err := sql.Open("sqlite", DSN(file)+"&_pragma=query_only(1)")
	must(t, err)
	defer db.Close()
	d, err := New(t.Context(), db, nil)
	must(t, err)
	defer d.Close()
	r := driver.Request{Name: "n", Owner: "o", TTL: time.Minute}
	if _, err := d.Try(t.Context(), r); err == nil || errors.Is(err, driver.ErrUncertain) || !strings.Contains(err.Error(), "readonly") {
		t.Errorf("Try in a read-only database returned %v", err)
	}
	if info, err := d.(driver.Operator).Inspect(t.Context(), "n"); err != nil || !info.Idle() {
		t.Errorf("Inspect in a read-only database: %+v, %v", info, err)
	}
}

// TestDowngradeOfAClaim: the TTL of a downgraded hold runs again, so its grant is no claim, which would be shorter (P7).
func TestDowngradeOfAClaim(t *testing.T) {
	d := dial(t, filepath.Join(t.TempDir(), "locks.db"), nil)
	defer d.Close()
	g, err := d.Try(t.Context(), driver.Request{Name: "n", Owner: "o", TTL: time.Minute})
	must(t, err)
	g.Claim = true // as of a waiter that was granted the name
	shared, err := d.(driver.Downgrader).Downgrade(t.Context(), g)
	if err != nil || shared.Claim || shared.Valid != g.TTL {
		t.Errorf("P7: a claim was downgraded to %+v, %v", shared, err)
	}
}

// parts are what other processes play.
var parts = map[string]func([]string) error{"count": count, "hold": hold}

// count adds to the number in a file, under the lock, until it is high enough, and
// tells how often it has.
func count(args []string) error {
	ctx := context.Background()
	locks, err := holdfast.Open(ctx, "sqlite://"+args[0])
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for _, err := os.Stat(args[3]); err != nil; _, err = os.Stat(args[3]) {
		time.Sleep(time.Millisecond)
	}
	total, mine := 0, 0
	fmt.Sscan(args[2], &total)
	for n := 0; n < total; {
		err := locks.Mutex("n", nil).Do(ctx, func(context.Context, *holdfast.Lease) error {
			text, err := os.ReadFile(args[1])
			if err == nil {
				fmt.Sscan(string(text), &n)
			}
			if n == total {
				return nil
			}
			n, mine = n+1, mine+1
			return os.WriteFile(args[1], fmt.Append(nil, n), 0o666)
		})
		if err != nil {
			return err
		}
	}
	fmt.Println(mine)
	return locks.Close()
}

// hold holds the lock until it is lost.
func hold(args []string) error {
	locks, err := holdfast.Open(context.Background(), "sqlite://"+args[0])
	if err != nil {
		return err
	}
	lease, err := locks.Mutex("n", &holdfast.Options{TTL: time.Second}).Acquire(context.Background())
	if err != nil {
		return err
	}
	fmt.Println("held")
	<-lease.Done()
	if !errors.Is(lease.Err(), holdfast.ErrLost) {
		return lease.Err()
	}
	fmt.Println("lost")
	return nil
}
