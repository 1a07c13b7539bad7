package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/sqllock"
)

// Stall stops a client once, after it has locked a row.
type Stall struct {
	once   sync.Once
	armed  atomic.Bool   // it may happen
	locked chan struct{} // closed when it has
	goOn   chan struct{}
}

// NewStall returns a stall that has not happened yet.
func NewStall() *Stall { return &Stall{locked: make(chan struct{}), goOn: make(chan struct{})} }

// Late lets a waiter come while a step that frees the name stands still between its read, which has shown nobody, and
// its write. The waiter must wait for the step, and then get the name (P7).
func (s *Stall) Late(t *testing.T, stalls, other driver.Driver) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	name := fmt.Sprintf("late/%x", rand.Uint64())
	held, err := stalls.Try(ctx, driver.Request{Name: name, Owner: "the holder of " + name, Mode: driver.Shared, TTL: time.Minute})
	must(t, err)
	before := driver.Request{Name: name, Owner: "one that waited for " + name, TTL: time.Minute}
	if _, err := other.(driver.Queuer).Enqueue(ctx, before); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Enqueue on a held name returned %v", err)
	}
	must(t, other.Release(ctx, []driver.Grant{{Request: before}})[0]) // the row still says that there may be places
	s.armed.Store(true)
	released, answered := make(chan error, 1), make(chan answer, 1)
	go func() { released <- stalls.Release(ctx, []driver.Grant{held})[0] }()
	<-s.locked
	next := driver.Request{Name: name, Owner: "the next one for " + name, TTL: time.Minute}
	go func() {
		g, err := other.(driver.Queuer).Enqueue(ctx, next)
		answered <- answer{g, err}
	}()
	select {
	case a := <-answered:
		t.Errorf("P7: while a step has the name's row, a waiter was told %+v, %v", a.Grant, a.err)
	case <-time.After(100 * time.Millisecond):
	}
	close(s.goOn)
	if err := <-released; err != nil {
		t.Errorf("P4: the release returned %v", err)
	}
	if a := <-answered; a.err != nil || a.Token <= held.Token {
		t.Errorf("P7: a waiter came while the name was freed: token %d after %d, %v", a.Token, held.Token, a.err)
	}
	for _, d := range []driver.Driver{stalls, other} {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Together returns a library's Together by which a client stalls. The first of the two calls
// for a row ends with reading it.
func (s *Stall) Together(inner func(context.Context, *sql.Conn, []sqllock.Statement) error) func(context.Context, *sql.Conn, []sqllock.Statement) error {
	return func(ctx context.Context, conn *sql.Conn, statements []sqllock.Statement) error {
		err := inner(ctx, conn, statements)
		if err == nil && s.armed.Load() && statements[len(statements)-1].Each != nil {
			s.once.Do(func() {
				close(s.locked)
				<-s.goOn
			})
		}
		return err
	}
}

// Test stops a client once it has locked a row. Another must get the row nevertheless (P7), and the one that stalled
// must be able to go on later.
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
	must(t, read(other, name+" the first")) // there is a row to lock
	s.armed.Store(true)
	stopped := make(chan error, 1)
	go func() { stopped <- read(stalls, name+" stalls") }()
	<-s.locked
	if err := read(other, name+" the other"); err != nil {
		t.Errorf("P7: behind a client that stands still with a locked row: %v", err)
	}
	close(s.goOn)
	if err := <-stopped; err != nil && !errors.Is(err, driver.ErrUncertain) {
		t.Errorf("P7: the client that stood still: %v", err)
	}
	if err := read(stalls, name+" again"); err != nil {
		t.Errorf("P7: a client that stood still cannot go on: %v", err)
	}
	for _, d := range []driver.Driver{stalls, other} {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}
