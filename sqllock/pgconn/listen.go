package pgconn

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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
	last    *atomic.Int32 // of several hosts the one that was used last
	channel string
	cancel  context.CancelFunc
	done    sync.WaitGroup

	mu          sync.Mutex // held while subscribers are called
	subscribers map[*subscriber]bool
	up          chan struct{} // closed while it listens
	err         error         // of the last attempt to
	doubted     bool          // ask the server before waiting for the next notification
	stopWaiting func()        // for it
	sure        chan struct{} // closed when it listens at a server that takes writes; nil: nobody waits
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
	last   *atomic.Int32                                  // of several hosts the one that was used last; nil: not known
}

func (l listener) listen(ctx context.Context, receive func(string)) (string, func(), error) {
	key, me := keyOf(l.config), &subscriber{receive, l.fresh}
	hubs.Lock()
	h, known := hubs.m[key]
	if !known {
		h = newHub(l.config, cmp.Or(l.last, new(atomic.Int32)))
		hubs.m[key] = h
	}
	h.mu.Lock()
	h.subscribers[me] = true
	var up <-chan struct{} = h.up
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
	if known {
		// The server at which it listens may have been demoted while all other drivers were idle.
		up = h.doubt()
	}
	if err := h.await(ctx, up); err != nil {
		leave()
		return "", nil, err
	}
	return h.channel, leave, nil
}

// newHub returns a hub that starts listening.
func newHub(config *pgx.ConnConfig, last *atomic.Int32) *hub {
	ctx, cancel := context.WithCancel(context.Background())
	h := &hub{
		config: forListening(config), last: last, channel: "holdfast_" + strings.ToLower(rand.Text()[:16]), cancel: cancel,
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
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, longestPause) {
		conn, err := h.subscribe(ctx)
		if err == nil {
			pause = firstPause
			h.mu.Lock()
			close(h.up)
			h.beSureLocked()
			h.mu.Unlock()
			h.publish("")
			h.forward(ctx, conn)
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
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
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

// connect connects as before. If the server refuses that, because the password or certificate was replaced since,
// connect connects as the pool of one of the drivers does now.
func (h *hub) connect(ctx context.Context) (*pgx.Conn, error) {
	conn, err := connectTo(ctx, h.config, h.last, pgx.ConnectConfig)
	if err == nil || !refusesUs(err) {
		return conn, err
	}
	h.mu.Lock()
	var all []func(context.Context) (*pgx.ConnConfig, error)
	for l := range h.subscribers {
		if l.fresh != nil {
			all = append(all, l.fresh)
		}
	}
	h.mu.Unlock()
	for _, fresh := range all {
		config, trouble := fresh(ctx)
		if trouble != nil {
			continue // the pool's own statements report it
		}
		config = forListening(config)
		if conn, trouble := connectTo(ctx, config, h.last, pgx.ConnectConfig); trouble == nil {
			h.config = config
			return conn, nil
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

// forward passes notifications on until the connection or ctx ends. Notifications that come with the answer to
// another question are the next that WaitForNotification returns, even if its context has ended. So a doubt stays
// until the server is asked.
func (h *hub) forward(ctx context.Context, conn *pgx.Conn) {
	for ctx.Err() == nil {
		wait, cancel := context.WithTimeout(ctx, quietFor)
		h.mu.Lock()
		if h.stopWaiting = cancel; h.doubted {
			cancel()
		}
		h.mu.Unlock()
		n, err := conn.WaitForNotification(wait)
		silent := wait.Err() != nil
		cancel()
		switch {
		case err == nil:
			h.publish(n.Payload)
			continue
		case ctx.Err() != nil || !silent:
			return
		}
		h.mu.Lock()
		sure := h.sure
		h.doubted = false
		h.mu.Unlock()
		if !h.isGood(ctx, conn) {
			return
		}
		h.mu.Lock()
		if h.sure == sure { // else somebody has doubted it meanwhile
			h.beSureLocked()
		}
		h.mu.Unlock()
	}
}

// doubt makes the hub ask whether the server at which it listens takes writes, and listen elsewhere if it does not.
// It returns a channel that is closed when the hub listens at one that does.
func (h *hub) doubt() (sure <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.doubted = true
	if h.sure == nil {
		h.sure = make(chan struct{})
	}
	if h.stopWaiting != nil {
		h.stopWaiting()
	}
	return h.sure
}

// beSureLocked tells those who have doubted that the hub listens at a server that takes writes.
func (h *hub) beSureLocked() {
	if h.sure != nil {
		close(h.sure)
		h.sure = nil
	}
}
