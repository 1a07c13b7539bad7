//go:build soak

package sqliteconn

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"modernc.org/sqlite"

	"github.com/holdfastlock/holdfast/driver"
)

// syncLog checks what the connections of a pool write while their commits are not synced.
type syncLog struct {
	sqldriver.Connector
	t *testing.T

	mu       sync.Mutex
	unsynced map[*syncConn]bool
	places   int  // statements that were not synced
	refuse   bool // the next connection that is to sync again fails
	refused  int
}

// Connect implements driver.Connector.
func (l *syncLog) Connect(ctx context.Context) (sqldriver.Conn, error) {
	inner, err := l.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &syncConn{inner.(*conn), l}, nil
}

type syncConn struct {
	*conn
	log *syncLog
}

// ExecContext implements driver.ExecerContext.
func (c *syncConn) ExecContext(ctx context.Context, text string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	if err := c.log.note(c, text); err != nil {
		return nil, err
	}
	return c.conn.ExecContext(ctx, text, args)
}

func (l *syncLog) note(c *syncConn, text string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case text == "PRAGMA synchronous = NORMAL":
		l.unsynced[c] = true
	case strings.HasPrefix(text, "PRAGMA synchronous ="):
		if l.refuse {
			l.refused, l.refuse = l.refused+1, false
			return errors.New("refused by the test")
		}
		delete(l.unsynced, c)
	case !l.unsynced[c]:
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
	if err != nil {
		t.Fatal(err)
	}
	l := &syncLog{Connector: connector{inner}, t: t, unsynced: map[*syncConn]bool{}}
	db := sql.OpenDB(l)
	defer db.Close()
	db.SetMaxOpenConns(2)
	d, err := New(t.Context(), db, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	request := func(owner string) driver.Request {
		return driver.Request{Name: "n", Owner: owner, TTL: time.Minute}
	}
	held, err := d.Try(t.Context(), request("holder"))
	if err != nil {
		t.Fatal(err)
	}
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
	if err := d.Renew(t.Context(), []driver.Grant{held})[0].Err; err != nil {
		t.Error(err)
	}
	if err := d.Release(t.Context(), []driver.Grant{held})[0]; err != nil {
		t.Error(err)
	}
	g, err := q.Wait(t.Context(), request("a"))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
		t.Error(err)
	}
}
