// Package celllock keeps locks in a cell: the lock service that "holdfast serve" runs. Import it for
// its URL schemes, or give [New] a client of your own:
//
//	import _ "github.com/holdfastlock/holdfast/celllock"
//
//	locks, err := holdfast.Open(ctx, "cell://10.0.0.1,10.0.0.2,10.0.0.3")
//
// The URL is cell://HOST:PORT,HOST:PORT/PREFIX, or cells:// for TLS; a host without a port has 7433.
// A bearer token is the URL's password: cells://:TOKEN@HOST. Parameters, all optional:
//
//	hf.token-file  a file with a bearer token, instead of one in the URL
//	hf.ca          cells: a file with the certificates to trust, instead of the system's
//	hf.cert        cells: a file with the client's certificate, with hf.key
//	hf.key         cells: a file with its private key
//
// Certificates are read again for each connection that is made, the token when it is needed. A URL with a
// token belongs into the environment, as every secret.
//
// A client has one session with the cell for each TTL, in whole seconds, and lock-delay that its locks
// have. One call of each session is always parked at a member: it keeps the session and all its holds
// alive, however many they are, and brings grants and losses. So renewing ten thousand leases asks the
// cell for nothing, and a thousand goroutines that wait cost one call. See the driver's Guarantees for
// what remains of its promises when things go wrong.
package celllock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/core/timer"
)

// Options configure a driver. The zero value is right for almost everybody.
type Options struct {
	// Prefix begins the names in the cell: PREFIX/NAME. It is a name as driver.CheckName wants it.
	// "": names stand in the cell as they are.
	Prefix string
	// Note is what operators see of the client's sessions.
	Note string
}

// client is the driver over one client of a cell.
type client struct {
	cell    *cell.Client
	own     bool // closed with the driver
	options Options
	prefix  string // of names in the cell: that of the options and a slash, or ""
	clock   driver.Clock
	caps    driver.Caps
	timer   *timer.Timer

	life context.Context // until Close
	die  context.CancelFunc

	mu       sync.Mutex
	isClosed bool
	sessions map[class]*session
	records  map[key]*record
	losses   chan driver.Loss
	working  sync.WaitGroup
}

// New returns a driver over a client of a cell, which stays the caller's. It makes first contact. Nil
// options are fine.
func New(ctx context.Context, c *cell.Client, o *Options) (driver.Driver, error) {
	return connectTo(ctx, c, false, o)
}

func connectTo(ctx context.Context, of *cell.Client, own bool, o *Options) (*client, error) {
	if o == nil {
		o = &Options{}
	}
	if o.Prefix != "" {
		if err := driver.CheckName(o.Prefix); err != nil {
			return nil, fmt.Errorf("prefix: %w", err)
		}
	}
	c := &client{
		cell: of, own: own, options: *o, clock: of.Clock(),
		sessions: map[class]*session{}, records: map[key]*record{}, losses: make(chan driver.Loss, 16),
	}
	if o.Prefix != "" {
		c.prefix = o.Prefix + "/"
	}
	c.life, c.die = context.WithCancel(context.Background())
	if err := c.contact(ctx); err != nil {
		c.die()
		return nil, err
	}
	c.timer = timer.New(c.clock, c.sweep)
	return c, nil
}

// block is driver.Caps.TokenBlock: the cell's tokens are those of package etcdlock.
const block = 1024

// maxTTL is the longest TTL of a session.
const maxTTL = 24 * time.Hour

// contact asks what the cell is.
func (c *client) contact(ctx context.Context) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	status, err := cell.Ask(ctx, c.cell, true, func(ctx context.Context, m *cell.Member) (*cellv1.StatusResponse, error) {
		return m.Cell.Status(ctx, &cellv1.StatusRequest{})
	})
	if err != nil {
		return err
	}
	shortest, poll := status.ShortestTtl.AsDuration(), status.Poll.AsDuration()
	if status.Cell == "" || len(status.Cell) > 64 || shortest <= 0 || poll < time.Millisecond || poll > time.Minute {
		return errors.New("this is no cell, or one of another version: its status makes no sense")
	}
	c.caps = driver.Caps{
		Store:   "cell:" + status.Cell + "/" + c.options.Prefix,
		Fencing: true, Shared: true, Slots: true, Fair: true,
		MinTTL: shortest, MaxTTL: maxTTL, Poll: poll, TokenBlock: block,
		Guarantees: guarantees,
	}
	return nil
}

// Caps implements driver.Driver.
func (c *client) Caps() driver.Caps { return c.caps }

// requestWithin bounds a request that has no deadline of its own.
const requestWithin = 5 * time.Second

// bounded is the context of a request: bounded in time and by the client's life.
func (c *client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	stop := context.AfterFunc(c.life, cancel)
	return ctx, func() { stop(); cancel() }
}

// alive returns why no request should be made.
func (c *client) alive(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		return driver.ErrClosed
	}
	return ctx.Err()
}

// in returns the name as the cell knows it, and out a name of the cell without the prefix.
func (c *client) in(name string) string  { return c.prefix + name }
func (c *client) out(name string) string { return strings.TrimPrefix(name, c.prefix) }

// Losses implements driver.Notifier.
func (c *client) Losses() <-chan driver.Loss { return c.losses }

// tellLocked passes a loss on, if the channel has room: the next renewal tells it again.
func (c *client) tellLocked(loss driver.Loss) {
	if c.isClosed || len(loss.Owners) == 0 {
		return
	}
	select {
	case c.losses <- loss:
	default:
	}
}

// Close implements driver.Driver. A session of which nothing is left is closed. Others end with their
// TTLs, and with them the holds that are left.
func (c *client) Close() error {
	c.mu.Lock()
	if c.isClosed {
		c.mu.Unlock()
		return nil
	}
	c.isClosed = true
	close(c.losses)
	used := map[*session]bool{}
	for _, r := range c.records {
		used[r.session] = true
		r.wakeLocked()
	}
	all := slices.Collect(maps.Values(c.sessions))
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	var closing sync.WaitGroup
	for _, s := range all {
		closing.Go(func() {
			of, err := s.opened(ctx)
			switch {
			case err != nil:
			case used[s]:
				of.Abandon()
			default:
				of.Close(ctx) // a courtesy: without it the session ends a little later
			}
		})
	}
	closing.Wait()
	c.timer.Close()
	c.die()
	c.working.Wait()
	if c.own {
		c.cell.Close()
	}
	return nil
}

// closeWithin bounds the courtesies of Close.
const closeWithin = time.Second
