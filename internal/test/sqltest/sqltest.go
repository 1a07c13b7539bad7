package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
)

// StartTogether opens drivers at the same time on a store without tables. All must open, and
// agree on the store's name.
func StartTogether(t *testing.T, open func() (driver.Driver, error)) {
	t.Helper()
	const clients = 20
	drivers, errs := make([]driver.Driver, clients), make([]error, clients)
	begin := make(chan struct{})
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			<-begin
			drivers[i], errs[i] = open()
		})
	}
	close(begin)
	wg.Wait()
	first := ""
	for i, d := range drivers {
		if errs[i] != nil {
			t.Errorf("client %d of %d that start together: %v", i, clients, errs[i])
			continue
		}
		defer d.Close()
		if first == "" {
			first = d.Caps().Store
		}
		if store := d.Caps().Store; store != first {
			t.Errorf("clients that start together call the store %q and %q", first, store)
		}
	}
}

// ManyAtOnce does many things at a time with a driver: holders, waiters, renewals and polls must not wait for
// each other for ever, also over one connection.
func ManyAtOnce(t *testing.T, d driver.Driver) {
	t.Helper()
	locks, err := holdfast.New(d, nil)
	must(t, err)
	defer locks.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	inside := make([]int, 4)
	for i := range 16 {
		lock := locks.Mutex(fmt.Sprintf("one/%d", i%4), &holdfast.Options{TTL: 2 * time.Second})
		wg.Go(func() {
			for range 5 {
				err := lock.Do(ctx, func(ctx context.Context, l *holdfast.Lease) error {
					inside[i%4]++
					return l.Renew(ctx)
				})
				if err != nil {
					t.Errorf("P7: one of many: %v", err)
				}
			}
		})
	}
	wg.Wait()
	for _, n := range inside {
		if n != 20 {
			t.Errorf("P1: of 20 updates under a lock %d are there", n)
		}
	}
}

// pendingNames is how many names Pending takes.
const pendingNames = 8

// Pending takes names over a connection that leave has spoilt, as an application or a setting of the
// server may: a hold that is not committed must not be reported as held, and the next connection
// serves. The pool of d is db, which has one connection. Other is a driver of the same store. With
// healthy, leave spoils nothing.
func Pending(t *testing.T, db *sql.DB, d, other driver.Driver, healthy bool, leave func(*sql.Conn)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := db.Conn(ctx)
	must(t, err)
	leave(conn)
	conn.Close()
	held := 0
	var failed error
	for i := range pendingNames {
		req := driver.Request{Name: fmt.Sprintf("%s %d", t.Name(), i), Owner: fmt.Sprintf("%s owner %d", t.Name(), i), TTL: time.Minute}
		_, err := d.Try(ctx, req)
		if err != nil {
			failed = err
			continue
		}
		held++
		req.Owner = fmt.Sprintf("%s other %d", t.Name(), i)
		if _, err := other.Try(ctx, req); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("P1: %s is held and not committed: another is told %v", req.Name, err)
		}
	}
	if least := pendingNames - 1; held < least || healthy && failed != nil {
		t.Errorf("only %d of %d names could be taken: %v", held, pendingNames, failed)
	}
}

// ClockBack: the server's clock is set back by an hour while names are held; ahead makes
// the rows as they are then, with times that lie in the future. A release frees at once,
// alone and in a batch, and tokens go on from those in the rows.
func ClockBack(t *testing.T, d driver.Driver, ahead func(by time.Duration)) {
	t.Helper()
	defer d.Close()
	var grants []driver.Grant
	for i := range 4 {
		r := driver.Request{Name: fmt.Sprintf("back/%d", i), Owner: fmt.Sprintf("%x", rand.Uint64()), TTL: time.Minute}
		g, err := d.Try(t.Context(), r)
		must(t, err)
		grants = append(grants, g)
	}
	ahead(time.Hour)
	for _, batch := range [][]driver.Grant{grants[:1], grants[1:3], grants[3:]} {
		if len(batch) == 1 && batch[0].Name == "back/3" {
			batch[0].Stray = true // the store has to remember it, in a record
		}
		for _, err := range d.Release(t.Context(), batch) {
			if err != nil {
				t.Errorf("P4: Release after the clock was set back: %v", err)
			}
		}
	}
	for _, g := range grants {
		last := g.Token + driver.Token(time.Hour.Microseconds())
		g.Owner = fmt.Sprintf("%x", rand.Uint64())
		next, err := d.Try(t.Context(), g.Request)
		if err != nil {
			t.Errorf("P5: the clock was set back by an hour, and a release of %s did not free it: %v", g.Name, err)
			continue
		}
		if next.Token <= last {
			t.Errorf("P3: the clock was set back by an hour, and token %d follows up to %d", next.Token, last)
		}
		d.Release(t.Context(), []driver.Grant{next})
	}
}

// Pool is a *sql.DB, or what tells the same of another pool.
type Pool interface {
	Conn(ctx context.Context) (*sql.Conn, error)
	Stats() sql.DBStats
}

// FullPool renews and releases holds while an application has all connections of the
// pool but that of renewals, and does not give them back. The pool allows more than one
// connection. Before that kill, if it is not nil, ends all connections: another must then be
// reserved.
func FullPool(t *testing.T, db Pool, d driver.Driver, kill func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	grants := take(ctx, t, d, "full", driver.Exclusive, 8)
	grants = append(grants, take(ctx, t, d, "full/read", driver.Shared, 4)...)
	if kill != nil {
		kill()
		failed := func(r driver.Renewal) bool { return r.Err != nil }
		for slices.ContainsFunc(d.Renew(ctx, grants), failed) && ctx.Err() == nil {
		}
	}
	for db.Stats().InUse < db.Stats().MaxOpenConnections {
		conn, err := db.Conn(ctx)
		must(t, err)
		defer conn.Close()
	}
	for i, r := range d.Renew(ctx, grants) {
		if r.Err != nil {
			t.Errorf("P2: renewal %d while an application has the pool: %v", i, r.Err)
		}
	}
	for _, g := range grants {
		if err := d.Release(ctx, []driver.Grant{g})[0]; err != nil {
			t.Errorf("P4: a release while an application has the pool: %v", err)
		}
	}
}

// take takes some names by a driver.
func take(ctx context.Context, t *testing.T, d driver.Driver, prefix string, mode driver.Mode, n int) (grants []driver.Grant) {
	t.Helper()
	seed := rand.Uint64() // the store may have been used before
	for i := range n {
		r := driver.Request{Name: fmt.Sprintf("%s/%x/%d", prefix, seed, i), Owner: fmt.Sprintf("%s %x %d", prefix, seed, i), Mode: mode, TTL: time.Minute}
		g, err := d.Try(ctx, r)
		must(t, err)
		grants = append(grants, g)
	}
	return grants
}

// Deadlines holds back a server's replies and ends the contexts of calls. All calls must
// return, with the context's error among theirs (P11). The pool connects through the proxy,
// and no timeout of its own ends the wait. open makes a driver over a pool.
func Deadlines(t *testing.T, proxy *chaos.Proxy, db *sql.DB, open func(context.Context, *sql.DB) (driver.Driver, error)) {
	t.Helper()
	d, err := open(t.Context(), db)
	must(t, err)
	defer d.Close()
	defer proxy.Heal()
	held := take(t.Context(), t, d, "deadline", driver.Exclusive, 1)
	q := d.(fullDriver)
	calls := map[string]func(context.Context) error{
		"New": func(ctx context.Context) error {
			_, err := open(ctx, db)
			return err
		},
		"Try": func(ctx context.Context) error {
			_, err := d.Try(ctx, driver.Request{Name: "deadline/driver", Owner: "an owner", TTL: time.Second})
			return err
		},
		"Renew":   func(ctx context.Context) error { return d.Renew(ctx, held)[0].Err },
		"Release": func(ctx context.Context) error { return d.Release(ctx, held)[0] },
		"Inspect": func(ctx context.Context) error {
			_, err := q.Inspect(ctx, held[0].Name)
			return err
		},
		"Break": func(ctx context.Context) error { return q.Break(ctx, held[0].Name, held[0].Token) },
	}
	for _, connected := range []bool{true, false} {
		for name, call := range calls {
			t.Run(fmt.Sprintf("%s, connected: %v", name, connected), func(t *testing.T) {
				for want, end := range contexts(t.Context()) {
					if connected {
						db.SetMaxIdleConns(4)
						must(t, db.PingContext(t.Context()))
					} else {
						db.SetMaxIdleConns(-1)
					}
					proxy.Hold(chaos.ToClient, "")
					ctx, cancel := end()
					err := call(ctx)
					if !errors.Is(err, want) || errors.Is(err, context.Canceled) != (want == context.Canceled) {
						t.Errorf("P11: after the end of its context, %v, the error is %v", want, err)
					}
					cancel()
					proxy.Heal()
				}
			})
		}
	}
}

// contexts make contexts that end in a moment, by the errors that they end with.
func contexts(parent context.Context) map[error]func() (context.Context, context.CancelFunc) {
	const moment = 30 * time.Millisecond
	return map[error]func() (context.Context, context.CancelFunc){
		context.DeadlineExceeded: func() (context.Context, context.CancelFunc) { return context.WithTimeout(parent, moment) },
		context.Canceled: func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(parent)
			time.AfterFunc(moment, cancel)
			return ctx, cancel
		},
	}
}
