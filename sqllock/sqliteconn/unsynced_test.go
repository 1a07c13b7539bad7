//go:build soak

package sqliteconn

import (
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"modernc.org/sqlite"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/sqltest"
)

// syncLog checks what the connections of a pool write while their commits are not synced.
type syncLog struct {
	t *testing.T

	mu       sync.Mutex
	unsynced map[any]bool
	places   int  // statements that were not synced
	refuse   bool // the next connection that is to sync again fails
	refused  int
}

func (l *syncLog) before(conn any, text string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case text == "PRAGMA synchronous = NORMAL":
		l.unsynced[conn] = true
	case strings.HasPrefix(text, "PRAGMA synchronous ="):
		if l.refuse {
			l.refused, l.refuse = l.refused+1, false
			return errors.New("refused by the test")
		}
		delete(l.unsynced, conn)
	case !l.unsynced[conn], strings.HasPrefix(text, "SELECT"):
	case strings.HasPrefix(text, "INSERT INTO holdfast_places"), strings.HasPrefix(text, "UPDATE holdfast_places"):
		l.places++
	default:
		l.t.Errorf("P1, P3: a crash may lose what this writes: %s", text)
	}
	return nil
}

// TestUnsynced: what is not on the disk before it is answered is places only, never a hold or a token,
// also after a connection could not be told to sync again.
func TestUnsynced(t *testing.T) {
	t.Parallel()
	inner, err := sqlite.NewConnector(DSN(filepath.Join(t.TempDir(), "locks.db")))
	must(t, err)
	l := &syncLog{t: t, unsynced: map[any]bool{}}
	db := (&sqltest.Hook{Connector: connector{inner}, Before: l.before}).Open(t)
	db.SetMaxOpenConns(2)
	d, err := New(t.Context(), db, nil)
	must(t, err)
	defer d.Close()
	request := func(owner string) driver.Request {
		return driver.Request{Name: "n", Owner: owner, TTL: time.Minute}
	}
	held, err := d.Try(t.Context(), request("holder"))
	must(t, err)
	q := d.(driver.Queuer)
	for range 2 { // they take places, and confirm them
		for _, owner := range []string{"a", "b", "c"} {
			if _, err := q.Enqueue(t.Context(), request(owner)); !errors.Is(err, driver.ErrHeld) {
				t.Fatal(err)
			}
		}
		l.mu.Lock()
		l.refuse = l.refused == 0 // when the first confirms its place
		l.mu.Unlock()
	}
	l.mu.Lock()
	if l.places < 4 || l.refused == 0 {
		t.Errorf("%d statements were not synced, %d connections could not be told to sync: nothing is tested", l.places, l.refused)
	}
	l.mu.Unlock()
	must(t, d.Renew(t.Context(), []driver.Grant{held})[0].Err)
	must(t, d.Release(t.Context(), []driver.Grant{held})[0])
	g, err := q.Wait(t.Context(), request("a"))
	must(t, err)
	must(t, d.Release(t.Context(), []driver.Grant{g})[0])
}
