package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
)

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
