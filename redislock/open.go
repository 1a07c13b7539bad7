package redislock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/ctxerr"
	"github.com/holdfastlock/holdfast/internal/life"
)

// tokenBlock is driver.Caps.TokenBlock.
const tokenBlock = 4096

// link is one Conn, and what the drivers of all layouts do with it.
type link struct {
	conn        Conn
	shared      route // for everything but renewals and releases
	reserved    route // for renewals and releases
	clock       driver.Clock
	caps        driver.Caps
	layout      layout
	cluster     bool // the servers are a cluster
	unsubscribe func()
	contention  contention
	forgetting  forgetting
	tellsLife   bool // the Conn knows the server's life

	// These send what replicas must acknowledge, by the routes of those names. nil: nothing need be.
	sharedAck, reservedAck *acknowledgers

	over   atomic.Bool
	closed chan struct{} // closed when over is true
}

// client is the driver of Holdfast's own layout.
type client struct {
	*link
	id string // names the channel of hand-overs and losses

	mu      sync.Mutex
	waiters map[string]*waiter // by owner
	losses  chan driver.Loss
}

// elsewhere begins the name of a client of a cluster. Its subscription may be at another server than the
// lock, which then cannot tell whether anybody is subscribed. If a script took such a client for dead, the hold
// that the client was told of would be granted to another (P1).
const elsewhere = "~"

// answer is the reply to a command, and says why what the command has written does not count: too few replicas
// have acknowledged it. Short is nil for commands that need not be acknowledged.
type answer struct {
	Reply
	short error
}

// route is a way to the server.
type route func(ctx context.Context, commands []Command) []answer

// notSent is an error of commands that were certainly not sent.
type notSent struct{ error }

func (e notSent) Unwrap() error { return e.error }

// route is that of Conn.Do, or another function like it, unless the driver is closed or ctx has ended.
func (c *link) route(do func(context.Context, []Command) []Reply) route {
	return func(ctx context.Context, commands []Command) []answer {
		if err := c.alive(ctx); err != nil {
			return slices.Repeat([]answer{{Reply: Reply{Err: notSent{err}}}}, len(commands))
		}
		answers := make([]answer, len(commands))
		for i, r := range do(ctx, commands) {
			answers[i].Reply = r
		}
		return answers
	}
}

// do sends commands. If ctx ends before the replies come, the errors satisfy errors.Is with ctx's
// own (P11).
func (l route) do(ctx context.Context, commands []Command) []answer {
	if len(commands) == 0 {
		return nil
	}
	answers := l(ctx, commands)
	for i := range answers {
		if err := answers[i].Err; err != nil && !isRefusal(err) {
			answers[i].Err = ctxerr.Of(ctx, err)
		}
	}
	return answers
}

// New returns a driver over a connection, which it closes when it is closed, and
// also when New fails. It makes first contact: it subscribes to the client's
// channel and reads which store this is. Nil options are fine.
func New(ctx context.Context, conn Conn, o *Options) (d driver.Driver, err error) {
	if o == nil {
		o = &Options{}
	}
	c, err := connect(ctx, conn, o)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	switch kind := cmp.Or(o.Redisson, RedissonLock); o.Layout {
	case SetNX:
		c.caps = setnxCaps(c.caps)
		d = setnx{c}
	case Redisson:
		c.caps = redissonCaps(c.caps, kind)
		d, err = newRedisson(ctx, c, kind)
	default:
		d, err = newClient(ctx, c)
	}
	if err != nil {
		return nil, errors.Join(Explain(ctxerr.Of(ctx, err)), c.Close())
	}
	if o.Replicas > 0 {
		c.caps.Guarantees = acknowledged(c.caps.Guarantees, o.Replicas)
	}
	return d, nil
}

func connect(ctx context.Context, conn Conn, o *Options) (*link, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	c := &link{
		conn: conn, clock: o.Clock, layout: layout{cmp.Or(o.Prefix, DefaultPrefix)},
		cluster: deploymentOf(conn) == clustered, unsubscribe: func() {}, closed: make(chan struct{}),
	}
	c.shared = c.route(conn.Do)
	c.reserved = c.shared
	if c.clock == nil {
		c.clock = driver.HostClock
	}
	id, err := c.identity(ctx)
	if err == nil && o.Replicas > 0 {
		err = c.mayWait(ctx)
	}
	stops := false
	if c.forgetting.on = o.Layout != Redisson && !o.Forget; err == nil && c.forgetting.on {
		stops, err = c.startForgetting(ctx, cmp.Or(o.MaxTTL, life.UsualTTL))
	}
	if err != nil {
		return nil, err
	}
	if r, ok := conn.(reserver); ok {
		c.reserved = c.route(r.Reserve())
	}
	if o.Replicas > 0 {
		c.sharedAck = newAcknowledgers(c, c.shared, o.Replicas)
		c.reservedAck = newAcknowledgers(c, c.reserved, o.Replicas)
	}
	c.caps = driver.Caps{
		Store:   "redis:" + id,
		Fencing: true, Shared: true, Slots: true, Fair: true,
		MinTTL: time.Millisecond, MaxTTL: cmp.Or(c.forgetting.rules.MaxTTL, life.Bound), Poll: o.Poll, TokenBlock: tokenBlock,
		Guarantees: guaranteesOf(deploymentOf(conn)),
	}
	if c.forgetting.on {
		c.caps.Guarantees = remembered(c.caps.Guarantees, deploymentOf(conn), c.forgetting.rules, stops)
	}
	return c, nil
}

// newClient returns the driver of Holdfast's own layout.
func newClient(ctx context.Context, l *link) (*client, error) {
	c := &client{link: l, id: rand.Text()[:16], waiters: map[string]*waiter{}, losses: make(chan driver.Loss, 16)}
	if c.cluster {
		c.id = elsewhere + c.id
	}
	c.caps.Recalls = true
	stop, err := c.conn.Subscribe(ctx, c.layout.channel(c.id), c.receive)
	if err == nil {
		c.unsubscribe = stop
	}
	return c, err
}

// identity returns the random name of the store, which its first client chooses. The server's
// address would not do, because it depends on the way to the server, nor its run id, which is new
// after each start. When the server's data were wiped, the next client chooses a new name: see the
// guarantees.
func (c *link) identity(ctx context.Context) (string, error) {
	key := c.layout.store()
	replies := c.shared.do(ctx, []Command{
		{Key: key, Args: []string{"SET", key, rand.Text(), "NX"}},
		{Key: key, Args: []string{"GET", key}},
	})
	for _, r := range replies {
		if r.Err != nil {
			return "", Explain(r.Err)
		}
	}
	id, ok := replies[1].Value.(string)
	if !ok {
		return "", fmt.Errorf("key %s has no text: another program uses it", key)
	}
	return id, nil
}

// Caps implements driver.Driver.
func (c *link) Caps() driver.Caps { return c.caps }

// alive returns an error if the driver is closed or ctx has ended.
func (c *link) alive(ctx context.Context) error {
	if c.over.Load() {
		return driver.ErrClosed
	}
	return ctx.Err()
}

// Close implements driver.Driver.
func (c *link) Close() error {
	if c.over.Swap(true) {
		return driver.ErrClosed
	}
	close(c.closed)
	c.unsubscribe()
	return c.conn.Close()
}

// Close implements driver.Driver.
func (c *client) Close() error {
	err := c.link.Close()
	if err != driver.ErrClosed {
		close(c.losses) // receive is not called any more
	}
	return err
}
