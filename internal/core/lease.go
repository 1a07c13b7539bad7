package core

import (
	"context"
	"sync/atomic"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/core/engine"
)

// Lease is one caller's part in a hold. Safe for concurrent use.
type Lease struct {
	core   *Core
	caller engine.Caller          // guarded by the core's mutex, but for Until
	end    atomic.Pointer[ending] // set once

	// Guarded by the core's mutex.

	// signal wakes the goroutine of an acquire. Later it is closed when Release has returned.
	signal   chan struct{}
	audience *audience // nil: nobody yet
}

// audience is what is told when a lease ends.
type audience struct {
	done     chan struct{} // nil: Done was not called
	contexts *binding
	traced   context.Context // for the news of the hold; nil: none
}

// ending is why a lease is over.
type ending struct{ err error }

var released = &ending{engine.ErrReleased}

// Init makes a lease ready for Acquire. Traced is the context for the news of its hold; nil: none.
func (le *Lease) Init(c *Core, name string, s *engine.Settings, try bool, traced context.Context) {
	le.core = c
	le.caller.Init(name, s, try, le)
	if traced != nil {
		le.audience = &audience{traced: traced}
	}
}

// wakeLocked tells the goroutine that waits for the lease that there is news.
func (le *Lease) wakeLocked() {
	select {
	case le.signal <- struct{}{}:
	default: // it is woken already, or talks to the store
	}
}

// endLocked ends the lease. It returns its contexts, to be cancelled without the mutex.
func (le *Lease) endLocked(err error) *binding {
	e := released
	if err != engine.ErrReleased {
		e = &ending{err}
	}
	le.end.Store(e)
	if le.audience == nil {
		return nil
	}
	if le.audience.done != nil {
		close(le.audience.done)
	}
	contexts := le.audience.contexts
	le.audience.contexts = nil
	return contexts
}

// Name returns the name without the prefix.
func (le *Lease) Name() string { return le.caller.Name() }

// Hold returns the hold that the lease is part of. Two leases of one hold return the same.
func (le *Lease) Hold() *engine.Hold { return le.caller.Hold() }

// Permits returns how many permits the hold has.
func (le *Lease) Permits() int { return le.caller.Permits() }

// Until returns the present trust deadline.
func (le *Lease) Until() driver.Instant { return le.caller.Until() }

// Snapshot is what a lease is at one instant.
type Snapshot struct {
	Mode     driver.Mode
	Token    driver.Token
	Degraded bool
	Source   engine.Source
}

// Snapshot returns what the lease is now.
func (le *Lease) Snapshot() Snapshot {
	le.core.mu.Lock()
	defer le.core.mu.Unlock()
	return le.snapshotLocked()
}

func (le *Lease) snapshotLocked() Snapshot {
	return Snapshot{le.caller.Mode(), le.caller.Token(), le.caller.Degraded(), le.caller.Source()}
}

// Show returns what the lease is now, and its hold as the driver knows it, to be shown to others. From now on
// the hold goes back to the store when it is released, also where others of the client wait (P3).
func (le *Lease) Show() (Snapshot, driver.Grant) {
	c := le.core
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stepLocked(&engine.Event{Kind: engine.Shown, Caller: &le.caller})
	return le.snapshotLocked(), c.engine.Grant(&le.caller)
}

// Err returns nil while the lease can be trusted, and after that always the same error. It reads the clock, so
// it is right at every instant, whatever timers and the network do (P2).
func (le *Lease) Err() error {
	for {
		if e := le.end.Load(); e != nil {
			return e.err
		}
		if le.core.Clock.Now() < le.caller.Until() {
			return nil
		}
		// The clock decides, not whether a timer has fired.
		if le.core.step(engine.Event{Kind: engine.Checked, Caller: &le.caller}).Do == engine.Yes {
			return nil // it was renewed at this moment
		}
	}
}

// Done returns a channel that is closed when Err is no longer nil, as soon as the process runs.
func (le *Lease) Done() <-chan struct{} {
	le.core.mu.Lock()
	defer le.core.mu.Unlock()
	if le.end.Load() != nil && (le.audience == nil || le.audience.done == nil) {
		return endedChannel
	}
	a := le.audienceLocked()
	if a.done == nil {
		a.done = make(chan struct{})
	}
	return a.done
}

// endedChannel is the channel of what has ended already, so that nobody waits for it.
var endedChannel = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// audienceLocked returns the audience, made if there is none.
func (le *Lease) audienceLocked() *audience {
	if le.audience == nil {
		le.audience = &audience{}
	}
	return le.audience
}

// binding is a function that is called when a lease ends.
type binding struct {
	cancel     context.CancelCauseFunc
	prev, next *binding
}

// cancellation is the bindings of a lease that is over, and the reason.
type cancellation struct {
	bindings *binding
	err      error
}

// cancellations must be run without the core's mutex.
type cancellations []cancellation

func (cs cancellations) run() {
	for _, one := range cs {
		for b := one.bindings; b != nil; b = b.next {
			b.cancel(one.err)
		}
	}
}

// takeCancelsLocked returns the bindings of the leases that the last steps have ended.
func (c *Core) takeCancelsLocked() cancellations {
	cancels := c.cancels
	c.cancels = nil
	return cancels
}

// Bind arranges that cancel is called with the reason when the lease ends, at once if it has ended. The function
// that Bind returns removes cancel, and calls it with context.Canceled.
func (le *Lease) Bind(cancel context.CancelCauseFunc) context.CancelFunc {
	b := &binding{cancel: cancel}
	c := le.core
	c.mu.Lock()
	end := le.end.Load()
	if end == nil {
		a := le.audienceLocked()
		if b.next = a.contexts; b.next != nil {
			b.next.prev = b
		}
		a.contexts = b
	}
	c.mu.Unlock()
	if end != nil {
		cancel(end.err)
	}
	return func() {
		c.mu.Lock()
		le.unbindLocked(b)
		c.mu.Unlock()
		cancel(context.Canceled)
	}
}

// unbindLocked removes b from the lease's list, if it is still there.
func (le *Lease) unbindLocked(b *binding) {
	if le.end.Load() != nil || b.prev == nil && le.audience.contexts != b {
		return // the lease has ended, and its list is gone, or b is removed already
	}
	if b.prev == nil {
		le.audience.contexts = b.next
	} else {
		b.prev.next = b.next
	}
	if b.next != nil {
		b.next.prev = b.prev
	}
	b.prev, b.next = nil, nil
}

// Renew renews the lease now, on the caller's goroutine. It returns nil if the TTL has started again, and why
// not if not.
func (le *Lease) Renew(ctx context.Context) error {
	next := le.core.step(engine.Event{Kind: engine.RenewCalled, Caller: &le.caller})
	if next.Do == engine.Ask {
		r := le.core.renew(ctx, next.Grant)[0]
		next = le.core.step(engine.Event{
			Kind: engine.RenewAnswered, Caller: &le.caller, Grant: next.Grant, Renewal: r,
		})
	}
	return next.Err
}

// Share makes other one more lease on the hold, and reports whether it has. It does not if mode is Exclusive and
// the hold is not, or if the lease has ended.
func (le *Lease) Share(other *Lease, mode driver.Mode) bool {
	other.core = le.core
	le.caller.InitSharer(&other.caller, other)
	next := le.core.step(engine.Event{
		Kind: engine.Joined, Caller: &le.caller, Other: &other.caller, Mode: mode,
	})
	return next.Do == engine.Yes
}

// Downgrade turns an exclusive hold into a shared one by d, on the caller's goroutine.
func (le *Lease) Downgrade(ctx context.Context, d driver.Downgrader) error {
	next := le.core.step(engine.Event{Kind: engine.DowngradeCalled, Caller: &le.caller})
	if next.Do == engine.RenewFirst {
		if err := le.Renew(ctx); err != nil {
			return err
		}
		next = le.core.step(engine.Event{Kind: engine.DowngradeCalled, Caller: &le.caller})
	}
	if next.Do == engine.Ask {
		g, err := d.Downgrade(ctx, next.Grant)
		next = le.core.step(engine.Event{
			Kind: engine.DowngradeAnswered, Caller: &le.caller, Grant: g, Err: err,
		})
	}
	return next.Err
}
