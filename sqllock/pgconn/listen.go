package pgconn

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfastlock/holdfast/internal/pause"
)

// All drivers of a process that connect in the same way share a hub: one connection that listens, on one channel.
// It exists while it has subscribers.

// hubs are those of this process, by their configuration: see keyOf.
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

	mu          sync.Mutex // held while subscribers are called
	subscribers map[*subscriber]bool
	up          chan struct{} // closed while it listens
	err         error         // of the last attempt to
	leave       func()        // the server at which it listens; nil: it does not
}

// subscriber is one driver.
type subscriber struct {
	receive func(payload string)
	// fresh returns the configuration by which the driver's pool would connect now. nil: as before.
	fresh func(context.Context) (*pgx.ConnConfig, error)
}

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

// listener implements Listen of sqllock.Library.
type listener struct {
	config *pgx.ConnConfig
	fresh  func(context.Context) (*pgx.ConnConfig, error) // see subscriber
}

func (l listener) listen(ctx context.Context, receive func(string)) (string, func(), error) {
	key, me := keyOf(l.config), &subscriber{receive, l.fresh}
	hubs.Lock()
	h := hubs.m[key]
	if h == nil {
		h = newHub(l.config)
		hubs.m[key] = h
	}
	h.mu.Lock()
	h.subscribers[me] = true
	up := h.up
	h.mu.Unlock()
	hubs.Unlock()
	leave := func() {
		hubs.Lock()
		h.mu.Lock() // nothing is received after this
		delete(h.subscribers, me)
		last := len(h.subscribers) == 0
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
	if err := h.await(ctx, up); err != nil {
		leave()
		return "", nil, err
	}
	return h.channel, leave, nil
}

// newHub returns a hub that starts listening.
func newHub(config *pgx.ConnConfig) *hub {
	ctx, cancel := context.WithCancel(context.Background())
	h := &hub{
		config: forListening(config), channel: "holdfast_" + strings.ToLower(rand.Text()[:16]), cancel: cancel,
		subscribers: map[*subscriber]bool{}, up: make(chan struct{}),
	}
	h.done.Go(func() { h.run(ctx) })
	return h
}

// forListening returns a configuration of a pool's connection for one that listens, at a server that takes writes.
// The pool's own OnNotification would keep ours.
func forListening(config *pgx.ConnConfig) *pgx.ConnConfig {
	config = config.Copy()
	config.OnNotification = nil
	if config.ValidateConnect == nil {
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	return config
}

// await returns nil when a channel is closed because the hub listens, or the error that prevents it.
func (h *hub) await(ctx context.Context, up <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
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

// run listens until the context ends. When the connection is lost it listens again, and tells subscribers that
// notifications may have been lost. If the first attempt fails it tells them that none arrive.
func (h *hub) run(ctx context.Context) {
	listened := false // and subscribers have not been told that it does not any more
	for wait := firstPause; ctx.Err() == nil; wait = min(2*wait, longestPause) {
		conn, err := h.subscribe(ctx)
		if err == nil {
			wait = firstPause
			staying, leave := context.WithCancel(ctx)
			h.mu.Lock()
			close(h.up)
			h.leave = leave
			h.mu.Unlock()
			h.publish("")
			h.forward(staying, conn)
			leave()
			closeConn(conn)
			listened = true
		} else if listened && ctx.Err() == nil {
			h.publish("lost " + err.Error())
			listened = false
		}
		h.mu.Lock()
		if h.err = err; err == nil {
			h.up = make(chan struct{})
		}
		h.mu.Unlock()
		pause.Sleep(ctx, wait)
	}
}

// publish passes a notification on to all subscribers.
func (h *hub) publish(payload string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.subscribers {
		l.receive(payload)
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
	if err := h.listenOn(ctx, conn); err != nil {
		closeConn(conn)
		return nil, err
	}
	return conn, nil
}

// listenOn subscribes to the channel. The name is in quotes, because PostgreSQL would fold the case otherwise.
func (h *hub) listenOn(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{h.channel}.Sanitize())
	return err
}

// isGood reports whether the server is still there, and takes writes. It listens again, so that operators see in
// pg_stat_activity what the connection is for.
func (h *hub) isGood(ctx context.Context, conn *pgx.Conn) bool {
	if !takesWrites(ctx, conn) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return h.listenOn(ctx, conn) == nil
}

// connect connects as before or, if that fails, as the pool of one of the drivers does now: the password or certificate
// may have been replaced since.
func (h *hub) connect(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, h.config)
	if err == nil {
		return conn, nil
	}
	h.mu.Lock()
	all := slices.Collect(maps.Keys(h.subscribers))
	h.mu.Unlock()
	for _, l := range all {
		if l.fresh == nil {
			continue
		}
		if config, trouble := l.fresh(ctx); trouble == nil { // else the pool's own statements report it
			h.config = forListening(config)
			return pgx.ConnectConfig(ctx, h.config)
		}
	}
	return nil, err
}

// closeConn closes a connection. Its error would be of no use.
func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn.Close(ctx)
}

// forward passes notifications on until the connection or ctx ends, or its server takes no writes any more.
func (h *hub) forward(ctx context.Context, conn *pgx.Conn) {
	for {
		wait, cancel := context.WithTimeout(ctx, quietFor)
		n, err := conn.WaitForNotification(wait)
		silent := wait.Err() != nil
		cancel()
		switch {
		case err == nil:
			h.publish(n.Payload)
		case ctx.Err() != nil || !silent || !h.isGood(ctx, conn):
			return
		}
	}
}

// leaveServer makes the hub listen anew: a server to which the drivers' connections lead takes no writes any more.
func (h *hub) leaveServer() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.leave != nil {
		h.leave()
	}
}
