package pgconn

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// All drivers of a process that connect in the same way hear through one connection,
// on one channel: a hub. It is there while somebody listens.

// hubs are those of this process, by how they connect.
var hubs = struct {
	sync.Mutex
	m map[string]*hub
}{m: map[string]*hub{}}

// hub is one connection that listens.
type hub struct {
	config  *pgx.ConnConfig
	channel string
	cancel  context.CancelFunc
	done    sync.WaitGroup

	mu    sync.Mutex // held while hears are called
	hears map[*hearer]bool
	up    chan struct{} // closed while it listens
	err   error         // of the last attempt to
}

// hearer is one driver.
type hearer struct {
	hear func(payload string)
	// fresh returns how the driver's pool would connect now. nil: as before.
	fresh func(context.Context) (*pgx.ConnConfig, error)
}

const (
	// firstPause is the pause before another attempt to listen; it doubles up to
	// the longest.
	firstPause   = 10 * time.Millisecond
	longestPause = time.Second
	// quiet is after how long without a word it is made sure that the server is
	// still there.
	quiet = 20 * time.Second
)

// keyOf tells configurations apart that may lead to different servers. A password that
// an option of the pool sets for each connection does not.
func keyOf(c *pgx.ConnConfig) string {
	return fmt.Sprintf("%q", []any{c.ConnString(), c.Host, c.Port, c.User, c.Database})
}

// listener implements Listen of sqllock.Library.
type listener struct {
	config *pgx.ConnConfig
	fresh  func(context.Context) (*pgx.ConnConfig, error) // see hearer
}

func (l listener) listen(ctx context.Context, hear func(string)) (string, func(), error) {
	key, me := keyOf(l.config), &hearer{hear, l.fresh}
	hubs.Lock()
	h := hubs.m[key]
	if h == nil {
		h = newHub(l.config)
		hubs.m[key] = h
	}
	h.mu.Lock()
	h.hears[me] = true
	h.mu.Unlock()
	hubs.Unlock()
	leave := func() {
		hubs.Lock()
		h.mu.Lock() // so that nothing is heard after this
		delete(h.hears, me)
		last := len(h.hears) == 0
		h.mu.Unlock()
		if last && hubs.m[key] == h {
			delete(hubs.m, key)
		}
		hubs.Unlock()
		if last {
			h.cancel()
			h.done.Wait()
		}
	}
	if err := h.await(ctx); err != nil {
		leave()
		return "", nil, err
	}
	return h.channel, leave, nil
}

// newHub returns a hub that begins to listen.
func newHub(config *pgx.ConnConfig) *hub {
	ctx, cancel := context.WithCancel(context.Background())
	h := &hub{
		config: quietly(config), channel: "holdfast_" + strings.ToLower(rand.Text()[:16]), cancel: cancel,
		hears: map[*hearer]bool{}, up: make(chan struct{}),
	}
	h.done.Go(func() { h.run(ctx) })
	return h
}

// quietly returns a configuration of a pool's connection for one that listens: the
// pool's own OnNotification would keep ours.
func quietly(config *pgx.ConnConfig) *pgx.ConnConfig {
	config = config.Copy()
	config.OnNotification = nil
	return config
}

// await returns when the hub listens, or why it does not.
func (h *hub) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	h.mu.Lock()
	up := h.up
	h.mu.Unlock()
	select {
	case <-up:
		return nil
	case <-ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return h.err
	}
	return ctx.Err()
}

// run listens until the context ends, and again when the connection is lost: then
// notifications may have been lost too. What it cannot mend at once it tells.
func (h *hub) run(ctx context.Context) {
	was := false // it has listened, and has not told that it does not
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, longestPause) {
		conn, err := h.subscribe(ctx)
		if err == nil {
			pause = firstPause
			h.mu.Lock()
			close(h.up)
			h.mu.Unlock()
			h.tell("")
			h.follow(ctx, conn)
			closeConn(conn)
			was = true
		} else if was && ctx.Err() == nil {
			h.tell("lost " + err.Error())
			was = false
		}
		h.mu.Lock()
		if h.err = err; err == nil {
			h.up = make(chan struct{})
		}
		h.mu.Unlock()
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// tell passes a notification on to all.
func (h *hub) tell(payload string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.hears {
		l.hear(payload)
	}
}

// subscribe opens a connection and listens on it.
func (h *hub) subscribe(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*dialTimeout)
	defer cancel()
	conn, err := h.connect(ctx)
	if err != nil {
		return nil, err
	}
	// In quotes, because otherwise PostgreSQL folds the case.
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{h.channel}.Sanitize()); err != nil {
		closeConn(conn)
		return nil, err
	}
	return conn, nil
}

// connect connects as before or, if the server refuses that, as a pool of one of the
// drivers does now: passwords and certificates are replaced, and tokens end.
func (h *hub) connect(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, h.config.Copy())
	if err == nil || !refusesUs(err) {
		return conn, err
	}
	h.mu.Lock()
	var all []func(context.Context) (*pgx.ConnConfig, error)
	for l := range h.hears {
		if l.fresh != nil {
			all = append(all, l.fresh)
		}
	}
	h.mu.Unlock()
	for _, fresh := range all {
		config, trouble := fresh(ctx)
		if trouble != nil {
			continue // the pool's own statements tell it
		}
		config = quietly(config)
		if conn, trouble := pgx.ConnectConfig(ctx, config.Copy()); trouble == nil {
			h.config = config
			return conn, nil
		}
	}
	return nil, err
}

// closeConn closes a connection; what that fails at is of no use to anybody.
func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn.Close(ctx)
}

// follow passes notifications on until the connection or ctx ends.
func (h *hub) follow(ctx context.Context, conn *pgx.Conn) {
	for ctx.Err() == nil {
		wait, cancel := context.WithTimeout(ctx, quiet)
		n, err := conn.WaitForNotification(wait)
		silent := wait.Err() != nil
		cancel()
		switch {
		case err == nil:
			h.tell(n.Payload)
		case ctx.Err() != nil || !silent || !answers(ctx, conn):
			return
		}
	}
}

// answers reports whether the server is still there.
func answers(ctx context.Context, conn *pgx.Conn) bool {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return conn.Ping(ctx) == nil
}
