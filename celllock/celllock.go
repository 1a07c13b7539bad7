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
// Certificates are read again for each connection that is made, the token for each call. A URL with a
// token belongs in the environment, as every secret.
//
// A client has one session with the cell for each TTL, in whole seconds, and lock-delay that its locks
// have. One call of each session is always parked at a member: it keeps the session and all its holds
// alive, however many they are, and brings grants and losses. So renewing ten thousand leases asks the
// cell for nothing, and a thousand goroutines that wait cost one call. See the driver's Guarantees for
// what remains of its promises when things go wrong.
package celllock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/cell/cellv1/cellv1connect"
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

	own bool // the client of the cell is closed with the driver
}

// client is the driver over one client of a cell.
type client struct {
	cell   *cell.Client
	own    bool   // closed with the driver
	prefix string // of names in the cell: that of the options and a slash, or ""
	note   string
	clock  driver.Clock
	caps   driver.Caps
	timer  *timer.Timer

	life context.Context // until Close; it ends under the mutex
	die  context.CancelFunc

	mu       sync.Mutex
	sessions map[class]*session
	records  map[key]*record
	losses   chan driver.Loss
	working  sync.WaitGroup
}

// New returns a driver over a client of a cell, which stays the caller's. It makes first contact. Nil
// options are fine.
func New(ctx context.Context, of *cell.Client, o *Options) (driver.Driver, error) {
	if o == nil {
		o = &Options{}
	}
	c := &client{
		cell: of, own: o.own, note: o.Note, clock: of.Clock(),
		sessions: map[class]*session{}, records: map[key]*record{}, losses: make(chan driver.Loss, 16),
	}
	if o.Prefix != "" {
		if err := driver.CheckName(o.Prefix); err != nil {
			return nil, fmt.Errorf("prefix: %w", err)
		}
		c.prefix = o.Prefix + "/"
	}
	c.life, c.die = context.WithCancel(context.Background())
	status, err := call(ctx, c, true, cellv1connect.CellClient.Status, &cellv1.StatusRequest{})
	shortest, poll := status.GetShortestTtl().AsDuration(), status.GetPoll().AsDuration()
	if err != nil {
		c.die()
		return nil, err
	}
	c.caps = driver.Caps{
		Store:   "cell:" + status.Cell + "/" + o.Prefix,
		Fencing: true, Shared: true, Slots: true, Fair: true,
		MinTTL: shortest, MaxTTL: maxTTL, Poll: poll, TokenBlock: block,
		Guarantees: guarantees,
	}
	c.timer = timer.New(c.clock, c.sweep)
	return c, nil
}

const (
	block         = 1024            // driver.Caps.TokenBlock: the cell's tokens are those of package etcdlock
	maxTTL        = 24 * time.Hour  // of a session
	requestWithin = 5 * time.Second // bounds a request that has no deadline of its own
	closeWithin   = time.Second     // bounds the courtesies of Close
)

// Caps implements driver.Driver.
func (c *client) Caps() driver.Caps { return c.caps }

// bounded returns the context of a request, which is bounded in time, or why none should be made.
func (c *client) bounded(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if c.life.Err() != nil {
		return nil, nil, driver.ErrClosed
	}
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	return ctx, cancel, ctx.Err()
}

// call is cell.Call, bounded.
func call[S, Q, A any](
	ctx context.Context, c *client, repeat bool, do func(S, context.Context, Q) (A, error), request Q,
) (answer A, err error) {
	ctx, cancel, err := c.bounded(ctx)
	if err != nil {
		return answer, err
	}
	defer cancel()
	return cell.Call(ctx, c.cell, repeat, do, request)
}

// Losses implements driver.Notifier.
func (c *client) Losses() <-chan driver.Loss { return c.losses }

// Close implements driver.Driver. A session of which nothing is left is closed. Others end with their
// TTLs, and with them the holds that are left.
func (c *client) Close() error {
	c.mu.Lock()
	if c.life.Err() != nil {
		c.mu.Unlock()
		return nil
	}
	c.die()
	close(c.losses)
	used := map[*session]bool{}
	for _, r := range c.records {
		used[r.session] = true
	}
	c.mu.Unlock()
	c.timer.Close()
	c.working.Wait() // from here on no session is opened
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	var closing sync.WaitGroup
	for _, s := range c.sessions {
		end := func() { s.Close(ctx) } // a courtesy: without it the session ends a little later
		if used[s] {
			end = s.Abandon
		}
		if s.err == nil {
			closing.Go(end)
		}
	}
	closing.Wait()
	if c.own {
		c.cell.Close()
	}
	return nil
}
