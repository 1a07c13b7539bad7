package pgconn

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// listener listens on a connection of its own.
type listener struct{ config *pgx.ConnConfig }

const (
	// firstPause is the pause before another attempt to listen; it doubles up to
	// the longest.
	firstPause   = 10 * time.Millisecond
	longestPause = time.Second
	// quiet is after how long without a word it is made sure that the server is
	// still there.
	quiet = 20 * time.Second
)

// listen implements Listen of sqllock.Library.
func (l listener) listen(ctx context.Context, channel string, hear func(string)) (func(), error) {
	conn, err := l.subscribe(ctx, channel)
	if err != nil {
		return nil, err
	}
	alive, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for conn != nil {
			l.follow(alive, conn, hear)
			l.close(conn)
			if conn = l.again(alive, channel); conn != nil {
				hear("")
			}
		}
	})
	return func() { cancel(); done.Wait() }, nil
}

// subscribe opens a connection and listens on it.
func (l listener) subscribe(ctx context.Context, channel string) (*pgx.Conn, error) {
	config := l.config.Copy()
	config.OnNotification = nil // that of a connection of the pool would keep ours
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	// In quotes, because otherwise PostgreSQL folds the case.
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		l.close(conn)
		return nil, err
	}
	return conn, nil
}

// close closes a connection; what that fails at is of no use to anybody.
func (l listener) close(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn.Close(ctx)
}

// follow passes notifications on until the connection or ctx ends.
func (l listener) follow(ctx context.Context, conn *pgx.Conn, hear func(string)) {
	for ctx.Err() == nil {
		wait, cancel := context.WithTimeout(ctx, quiet)
		n, err := conn.WaitForNotification(wait)
		silent := wait.Err() != nil
		cancel()
		switch {
		case err == nil:
			hear(n.Payload)
		case ctx.Err() != nil || !silent || !l.answers(ctx, conn):
			return
		}
	}
}

// answers reports whether the server is still there.
func (l listener) answers(ctx context.Context, conn *pgx.Conn) bool {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return conn.Ping(ctx) == nil
}

// again listens until it succeeds, or returns nil when ctx ends.
func (l listener) again(ctx context.Context, channel string) *pgx.Conn {
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, longestPause) {
		if conn, err := l.subscribe(ctx, channel); err == nil {
			return conn
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	return nil
}
