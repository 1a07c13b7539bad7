package sqltest

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/sqllock"
)

// Stall stops a client once, after it has locked a row.
type Stall struct {
	once   sync.Once
	locked chan struct{} // closed when it has
	goOn   chan struct{}
}

// NewStall returns a stall that has not happened yet.
func NewStall() *Stall { return &Stall{locked: make(chan struct{}), goOn: make(chan struct{})} }

// Together returns a library's Together by which a client stalls. The first of the two calls
// for a row ends with reading it.
func (s *Stall) Together(inner func(context.Context, *sql.Conn, []sqllock.Statement) error) func(context.Context, *sql.Conn, []sqllock.Statement) error {
	return func(ctx context.Context, conn *sql.Conn, statements []sqllock.Statement) error {
		err := inner(ctx, conn, statements)
		if err == nil && statements[len(statements)-1].Each != nil {
			s.once.Do(func() {
				close(s.locked)
				<-s.goOn
			})
		}
		return err
	}
}

// Test lets two clients contend for a row until the one that stalls has locked it. The other
// must get the row nevertheless (P7), and the one that stalled must be able to go on later.
func (s *Stall) Test(t *testing.T, stalls, other driver.Driver) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	name := fmt.Sprintf("stall/%x", rand.Uint64())
	read := func(d driver.Driver, owner string) error {
		g, err := d.Try(ctx, driver.Request{Name: name, Owner: owner, Mode: driver.Shared, TTL: time.Minute})
		if err == nil {
			err = d.Release(ctx, []driver.Grant{g})[0]
		}
		return err
	}
	var wg sync.WaitGroup
	for i, d := range []driver.Driver{stalls, stalls, other, other} {
		wg.Go(func() {
			for j := 0; ctx.Err() == nil; j++ {
				select {
				case <-s.locked:
					if d == other {
						return
					}
				default:
				}
				// The holds of the one that stalls may have ended.
				if err := read(d, fmt.Sprintf("%s reader %d.%d", name, i, j)); err != nil && d == other {
					t.Errorf("P7: a reader: %v", err)
				}
				select {
				case <-s.goOn:
					return
				default:
				}
			}
		})
	}
	<-s.locked
	if err := read(other, name+" the last"); err != nil {
		t.Errorf("P7: behind a client that stands still with a locked row: %v", err)
	}
	close(s.goOn)
	wg.Wait()
	if err := read(stalls, name+" again"); err != nil {
		t.Errorf("P7: a client that stood still cannot go on: %v", err)
	}
	for _, d := range []driver.Driver{stalls, other} {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}
