package pgconn

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfastlock/holdfast/internal/pause"
)

// hubs are those of this process, by their configuration: see keyOf.
var hubs = struct {
	sync.Mutex
	m map[string]*hub
}{m: map[string]*hub{}}

// hub is one connection that listens, on one channel, for all drivers of the process that connect in the same way. It
// exists while it has subscribers.
type hub struct {
	channel string
	cancel  context.CancelFunc
	done    sync.WaitGroup

	mu          sync.Mutex // held while subscribers are called
	subscribers map[*subscriber]bool
	up          bool // notifications arrive
}

// subscriber is one driver.
type subscriber struct {
	receive func(payload string)
	now     configure
}

// configure returns the configuration by which a driver's pool connects now.
type configure func(context.Context) (*pgx.ConnConfig, error)

const (
	// firstPause is the pause before another attempt to listen; it doubles up to the longest.
	firstPause   = 10 * time.Millisecond
	longestPause = time.Second
	// quietFor is how long no notification may come before the hub asks whether the server is still there, and
	// takes writes.
	quietFor = 20 * time.Second
)

// keyOf returns a text that differs between configurations which may lead to different servers or users. A password
// that an option of the pool sets for each connection is no part of it.
func keyOf(c *pgx.ConnConfig) string {
	return fmt.Sprintf("%q", []any{c.ConnString(), c.Host, c.Port, c.User, c.Database})
}

// listen implements Listen of sqllock.Library.
func listen(key string, now configure, receive func(string)) (channel string, stop func()) {
	me := &subscriber{receive, now}
	hubs.Lock()
	defer hubs.Unlock()
	h := hubs.m[key]
	if h == nil {
		ctx, cancel := context.WithCancel(context.Background())
		h = &hub{
			channel: "holdfast_" + strings.ToLower(rand.Text()[:16]), cancel: cancel, subscribers: map[*subscriber]bool{},
		}
		h.done.Go(func() { h.run(ctx) })
		hubs.m[key] = h
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subscribers[me] = true
	if h.up {
		receive("")
	}
	return h.channel, func() {
		hubs.Lock()
		h.mu.Lock() // nothing is received after this
		delete(h.subscribers, me)
		last := len(h.subscribers) == 0
		h.mu.Unlock()
		if last {
			delete(hubs.m, key)
		}
		hubs.Unlock()
		if last {
			h.cancel()
			h.done.Wait()
		}
	}
}

// run listens until the context ends. It tells subscribers when it listens (again), because notifications may have been
// lost before, and once when it cannot.
func (h *hub) run(ctx context.Context) {
	lost := false
	for wait := firstPause; ctx.Err() == nil; wait = min(2*wait, longestPause) {
		conn, err := h.subscribe(ctx)
		switch {
		case err == nil:
			wait, lost = firstPause, false
			h.publish("", true)
			h.forward(ctx, conn)
			closeConn(conn)
		case !lost && ctx.Err() == nil:
			lost = true
			h.publish("lost "+err.Error(), false)
		}
		pause.Sleep(ctx, wait)
	}
}

// publish passes a notification on to all subscribers.
func (h *hub) publish(payload string, up bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.up = up
	for s := range h.subscribers {
		s.receive(payload)
	}
}

// subscribe opens a connection as the pool of one of the drivers does now, to a server that takes writes, and listens on
// it.
func (h *hub) subscribe(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*dialTimeout)
	defer cancel()
	now := configure(func(context.Context) (*pgx.ConnConfig, error) { return nil, context.Canceled }) // the last one has left
	h.mu.Lock()
	for s := range h.subscribers {
		now = s.now
	}
	h.mu.Unlock()
	config, err := now(ctx)
	if err != nil {
		return nil, err
	}
	config = config.Copy()
	config.OnNotification = nil // the pool's own would keep ours
	if config.ValidateConnect == nil {
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err == nil {
		if err = h.listenOn(ctx, conn); err != nil {
			closeConn(conn)
		}
	}
	return conn, err
}

// listenOn subscribes to the channel. The name is in quotes, because PostgreSQL would fold the case otherwise.
func (h *hub) listenOn(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	_, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{h.channel}.Sanitize())
	return err
}

// closeConn closes a connection. Its error would be of no use.
func closeConn(conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return conn.Close(ctx)
}

// forward passes notifications on until the connection or ctx ends, or its server takes no writes any more. It listens
// again at times, so that operators see in pg_stat_activity what the connection is for.
func (h *hub) forward(ctx context.Context, conn *pgx.Conn) {
	for {
		wait, cancel := context.WithTimeout(ctx, quietFor)
		n, err := conn.WaitForNotification(wait)
		silent := wait.Err() != nil
		cancel()
		switch {
		case err == nil:
			h.publish(n.Payload, true)
		case ctx.Err() != nil || !silent || !takesWrites(ctx, conn) || h.listenOn(ctx, conn) != nil:
			return
		}
	}
}
