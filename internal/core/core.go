// Package core carries out what the engine says. Packages engine and record decide, without I/O, clocks and
// goroutines; this package has the driver, the clock, the timer, and the goroutines of the callers. Package
// holdfast is the API over it.
//
//	core.go     the client's one engine behind its mutex: events in, effects out; batches in the background
//	acquire.go  P6, P7, P11: a caller asks the store until it has the hold, or leaves nothing behind
//	lease.go    P1, P2: trust ends by the clock; whoever relies on a lease is told of its end
//	release.go  P4: a hold is given back once, within a bounded time
//	close.go    P9: the end of a client
//
// P3, P5 and P8 are kept by the engine and the store.
package core

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/core/engine"
	"github.com/holdfastlock/holdfast/internal/core/timer"
	"github.com/holdfastlock/holdfast/internal/pause"
)

// Config is what a core is made of.
type Config struct {
	Driver driver.Driver
	Caps   driver.Caps // of the driver
	Clock  driver.Clock
	Prefix string // of all names

	// Tell gets the news of holds, with the context for the events of that hold or nil. It is called with the
	// core's mutex, in the order in which things happened, and must not block. Nil: nobody listens.
	Tell func(n *engine.News, traced context.Context)
	// Traced: callers have contexts for events (Lease.Init).
	Traced bool

	LostError        func(name string, t driver.Token, reason error) error // the error of a lost lease
	UncertainRelease func(name string, err error) error                    // the error of a release that the store has not confirmed
}

// Core takes and keeps the holds of one client. Safe for concurrent use.
type Core struct {
	Config
	queuer  driver.Queuer           // nil: the store has no queue
	sharder driver.Sharder          // nil: the store has no parts
	hinter  driver.ContentionHinter // nil: the driver gives no hints of contention
	waker   driver.Waker            // nil: the store does not tell when a name is free, or it has a queue
	timer   *timer.Timer
	closing context.Context // ends when Close begins
	close   context.CancelCauseFunc

	mu      sync.Mutex
	engine  *engine.Engine
	bound   bound
	cancels cancellations // of leases that have just ended
	active  int           // operations and batches under way, for Close to wait for
	quiet   chan struct{} // closed when the last of them ends after Close has begun
	closed  bool
	done    chan struct{} // closed when Close has finished
}

// New returns a core over the driver. It does no I/O.
func New(config Config) *Core {
	c := &Core{Config: config, done: make(chan struct{})}
	d := config.Driver
	c.queuer, _ = driver.As[driver.Queuer](d)
	c.sharder, _ = driver.As[driver.Sharder](d)
	if c.queuer != nil {
		c.hinter, _ = driver.As[driver.ContentionHinter](d)
	} else {
		c.waker, _ = driver.As[driver.Waker](d)
	}
	c.engine = engine.New(engine.Config{
		Prefix: c.Prefix, Queue: c.queuer != nil, Sharded: c.sharder != nil,
		Poll: c.Caps.PollInterval(), Recalls: c.Caps.Recalls, TokenBlock: c.Caps.TokenBlock,
		Silent: c.Tell == nil, Traced: c.Traced,
		NewOwner: rand.Text, Jitter: pause.Jitter,
		LostError: c.LostError, UncertainRelease: c.UncertainRelease,
	})
	c.timer = timer.New(c.Clock, c.tick)
	c.closing, c.close = context.WithCancelCause(context.Background())
	if n, ok := driver.As[driver.Notifier](d); ok {
		if losses := n.Losses(); losses != nil {
			go c.listen(losses)
		}
	}
	return c
}

// Idle reports whether nothing is held, waited for or to be released (P9).
func (c *Core) Idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.engine.Idle()
}

// UntilClosed returns a context that also ends, by ErrClosed, when Close begins. The function frees it.
func (c *Core) UntilClosed(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(c.closing, func() { cancel(driver.ErrClosed) })
	return ctx, func() {
		unhook()
		cancel(nil)
	}
}

// Wall turns an instant into wall time, by the present clocks.
func (c *Core) Wall(at driver.Instant) time.Time { return time.Now().Add(at.Sub(c.Clock.Now())) }

// Start counts an operation that Close must wait for; Stop ends it. The error is ErrClosed if the core is
// closed.
func (c *Core) Start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return driver.ErrClosed
	}
	c.active++
	return nil
}

// Stop ends an operation that Start has counted.
func (c *Core) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finishLocked(1)
}

// finishLocked counts operations out, and tells Close when none is left.
func (c *Core) finishLocked(n int) {
	c.active -= n
	if c.quiet != nil && c.active == 0 && c.engine.Unconfirmed() == 0 {
		close(c.quiet)
		c.quiet = nil
	}
}

// step feeds an event to the engine, carries out its effects, and returns what the event's caller does next.
func (c *Core) step(ev engine.Event) engine.Action {
	c.mu.Lock()
	next := c.stepLocked(&ev)
	cancels := c.takeCancelsLocked()
	c.mu.Unlock()
	cancels.run()
	return next
}

// stepInBackground is step for events that belong to no caller. It cancels contexts on a goroutine of their
// own: they may have been made from contexts of the user's own types, whose methods may block, and that must
// delay neither the loop of the core nor the news of other losses.
func (c *Core) stepInBackground(ev engine.Event, operations int) {
	c.mu.Lock()
	c.stepLocked(&ev)
	cancels := c.takeCancelsLocked()
	c.finishLocked(operations)
	c.mu.Unlock()
	if len(cancels) > 0 {
		go cancels.run()
	}
}

// stepLocked is step without the cancelling of contexts: takeCancelsLocked must follow, except after events
// that end no lease.
func (c *Core) stepLocked(ev *engine.Event) engine.Action {
	if ev.Now == 0 {
		ev.Now = c.Clock.Now() // a system call
	}
	next := c.engine.Step(ev)
	effects := c.engine.Effects()
	for i := range effects {
		c.carryOutLocked(&effects[i])
	}
	clear(effects) // free what they refer to: the engine keeps the array
	if at, ok := c.engine.Next(); ok {
		c.timer.Set(at)
	}
	return next
}

// carryOutLocked carries out one effect. It waits for nothing.
func (c *Core) carryOutLocked(f *engine.Effect) {
	switch f.Kind {
	case engine.Wake:
		f.Caller.Ref.(*Lease).wakeLocked()
	case engine.End:
		if contexts := f.Caller.Ref.(*Lease).endLocked(f.Err); contexts != nil {
			c.cancels = append(c.cancels, cancellation{contexts, f.Err})
		}
	case engine.Tell:
		var traced context.Context
		if about := f.News.About; about != nil && about.Ref.(*Lease).audience != nil {
			traced = about.Ref.(*Lease).audience.traced
		}
		c.Tell(f.News, traced)
	case engine.FindShards:
		c.active++
		go c.findShards(f.Due)
	case engine.Renew:
		c.active++
		go c.renewBatch(f.Batch)
	case engine.Withdraw:
		c.active++
		go c.withdrawBatch(f.Batch)
	}
}

// tick is called by the timer when something is due.
func (c *Core) tick() { c.stepInBackground(engine.Event{Kind: engine.Ticked}, 0) }

// findShards asks the driver for the shards of requests.
func (c *Core) findShards(d *engine.Due) {
	shards := make([]string, len(d.Requests))
	for i, r := range d.Requests {
		shards[i] = c.sharder.Shard(r)
	}
	c.stepInBackground(engine.Event{Kind: engine.ShardsFound, Due: d, Shards: shards}, 1)
}

// renewBatch renews holds together.
func (c *Core) renewBatch(b *engine.Batch) {
	ctx, cancel := context.WithTimeout(context.Background(), b.Within)
	renewals := c.renew(ctx, b.Grants...)
	cancel()
	c.stepInBackground(engine.Event{Kind: engine.BatchRenewed, Batch: b, Renewals: renewals}, 1)
}

// withdrawBatch makes one attempt to withdraw requests and holds that the client no longer wants.
func (c *Core) withdrawBatch(b *engine.Batch) {
	ctx, cancel := context.WithTimeout(context.Background(), b.Within)
	errs := c.release(ctx, b.Grants...)
	cancel()
	c.stepInBackground(engine.Event{Kind: engine.BatchWithdrawn, Batch: b, Errs: errs}, 1)
}

var errTooFew = errors.New("the driver returned too few results")

// renew renews grants. The results are at least as many as the grants.
func (c *Core) renew(ctx context.Context, grants ...driver.Grant) []driver.Renewal {
	out := c.Driver.Renew(ctx, grants)
	for len(out) < len(grants) {
		out = append(out, driver.Renewal{Err: errTooFew})
	}
	return out
}

// release releases grants. The results are at least as many as the grants.
func (c *Core) release(ctx context.Context, grants ...driver.Grant) []error {
	errs := c.Driver.Release(ctx, grants)
	for len(errs) < len(grants) {
		errs = append(errs, errTooFew)
	}
	return errs
}

// listen receives the losses that the driver learns of by itself.
func (c *Core) listen(losses <-chan driver.Loss) {
	for {
		select {
		case loss, ok := <-losses:
			if !ok {
				return
			}
			reason := loss.Err
			if reason == nil {
				reason = driver.ErrNotHeld
			}
			reasons := make(map[string]error, len(loss.Owners))
			for _, owner := range loss.Owners {
				reasons[owner] = reason
			}
			c.stepInBackground(engine.Event{Kind: engine.LossesTold, Losses: reasons}, 0)
		case <-c.closing.Done():
			return
		}
	}
}
