package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"testing"
	"testing/synctest"
	"time"
)

// slowServer is a database to which a connection takes a while.
type slowServer struct {
	idleServer
	takes time.Duration
}

func (s slowServer) Connect(ctx context.Context) (sqldriver.Conn, error) {
	select {
	case <-time.After(s.takes):
		return s, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestConnectOutlivesItsRequest: requests whose contexts end sooner than a connection is opened
// get one all the same, and what is opened for them ends with the last driver.
func TestConnectOutlivesItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ask := func(p *pool) error {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			_, err := p.with(ctx, taking, func(error) Failure { return Refused }, func(*sql.Conn) error { return nil })
			return err
		}
		db := sql.OpenDB(slowServer{takes: 50 * time.Millisecond})
		defer db.Close()
		db.SetMaxOpenConns(2)
		p := joinPool(db, nil)
		for n := 1; ask(p) != nil; n++ {
			if n == 10 {
				t.Fatal("none of ten requests had a connection")
			}
		}
		p.leave()
		never := sql.OpenDB(slowServer{takes: time.Hour})
		defer never.Close()
		p = joinPool(never, nil)
		for range 100 {
			if ask(p) == nil {
				t.Fatal("a connection that takes an hour was there at once")
			}
		}
		synctest.Wait()
		if n := never.Stats().OpenConnections; n > maxLate {
			t.Errorf("%d connections are being opened for requests that have given up, want %d at most", n, maxLate)
		}
		p.leave() // and all goroutines end, or this test does not
	})
}
