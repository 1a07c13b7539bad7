package zklock

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/core/timer"
	"github.com/holdfastlock/holdfast/internal/pause"
	"github.com/holdfastlock/holdfast/internal/record"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// client is the driver.
type client struct {
	wire     zk.Config // Leaderless: srvr of all servers told that none leads. Otherwise all sessions are at the leader (P1)
	layout   layout
	acl      *zk.ACL // nil: everybody may do everything
	clock    driver.Clock
	caps     driver.Caps
	onRevoke func(name string, token driver.Token)
	retry    retryPolicy

	timer      *timer.Timer
	life       context.Context // until Close
	die        context.CancelFunc
	background sync.WaitGroup

	mu         sync.Mutex
	isClosed   bool
	longest    time.Duration             // session; shorter when the server's bounds were lowered
	keepers    map[time.Duration]*keeper // by timeout
	owners     map[ownerKey]*owner
	mostOwners int // how many the map has had
	tombstones record.Tombstones
	losses     chan driver.Loss
	dirs       map[string]bool // directories that were used
}

// Caps implements driver.Driver.
func (c *client) Caps() driver.Caps { return c.caps }

// requestWithin bounds each call. Close ends calls by ending their sessions.
const requestWithin = 5 * time.Second

// retrying calls do again, as the policy says and while ctx lasts, if a connection was lost, or if nothing was sent
// because the session was found to be over: there is another then.
func (c *client) retrying(ctx context.Context, do func() error) error {
	begun := time.Now()
	for n := 0; ; n++ {
		err := do()
		if !errors.Is(err, zk.ErrConnectionLoss) && !(errors.Is(err, zk.ErrNotSent) && errors.Is(err, zk.ErrExpired)) {
			return err
		}
		if rest, again := c.retry(n, time.Since(begun)); !again || !pause.Sleep(ctx, rest) {
			return err
		}
	}
}

// locked calls do with the client's mutex.
func (c *client) locked(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do()
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

// Losses implements driver.Notifier.
func (c *client) Losses() <-chan driver.Loss { return c.losses }

// tellLocked passes a loss on, if the channel has room: the next renewal tells it again.
func (c *client) tellLocked(loss driver.Loss) {
	if c.isClosed {
		return
	}
	select {
	case c.losses <- loss:
	default:
	}
}

// Close implements driver.Driver. A session is ended at once, with all that is left on it, unless a hold
// with a lock-delay is left: it keeps its name closed until the session's timeout is over.
func (c *client) Close() error {
	c.mu.Lock()
	if c.isClosed {
		c.mu.Unlock()
		return nil
	}
	c.isClosed = true
	close(c.losses)
	delayed := map[*keeper]bool{}
	for _, o := range c.owners {
		if o.lockDelay > 0 && o.state == held {
			delayed[o.keeper] = true
		}
	}
	keepers := slices.Collect(maps.Values(c.keepers))
	c.mu.Unlock()
	c.die()
	c.timer.Close()
	c.background.Wait() // all sessions are open, or are not
	var closing sync.WaitGroup
	for _, k := range keepers {
		switch {
		case k.session == nil:
		case delayed[k]:
			k.session.Abandon()
		default:
			closing.Go(func() { closeSession(k.session) })
		}
	}
	closing.Wait()
	return nil
}
