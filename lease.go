package holdfast

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/engine"
)

// Lease is one hold on a lock. The client renews it in the background until it is released or lost.
// Safe for concurrent use.
//
// A holder can be wrong about its lease: the process may stand still between a check of the lease
// and the act that relies on it. If that must not happen, hand the token to the resource and let it
// refuse lower ones: see package fence.
type Lease struct {
	client *Client
	caller engine.Caller          // guarded by the client's mutex, but for Until
	end    atomic.Pointer[ending] // set once

	// Guarded by the client's mutex.

	// signal wakes the goroutine of an acquire. Later it is closed when Release has returned.
	signal      chan struct{}
	audience    *audience // nil: nobody yet
	interrupt   func()    // ends the wait for the store, while there is one
	interrupted bool      // the store is to be asked again
}

// newLease returns a lease that is not held yet.
func newLease(c *Client, name string, s *settings, try bool) *Lease {
	le := &Lease{client: c}
	le.caller.Init(name, &s.Settings, try, le)
	return le
}

// audience is what is told when a lease ends.
type audience struct {
	done     chan struct{} // nil: Done was not called
	contexts *leaseContext
	traced   context.Context // Event.Context; nil: the client has no Trace
}

// ending is why a lease is over.
type ending struct{ err error }

var released = &ending{ErrReleased}

// ensureSignalLocked makes the channel by which the lease's goroutine is woken.
func (le *Lease) ensureSignalLocked() {
	if le.signal == nil {
		le.signal = make(chan struct{}, 1)
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
func (le *Lease) endLocked(err error) *leaseContext {
	e := released
	if err != ErrReleased {
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

// Name returns the lock's name without the client's prefix.
func (le *Lease) Name() string { return le.caller.Name() }

// Mode returns how the lease holds the name.
func (le *Lease) Mode() Mode {
	c := le.client
	c.mu.Lock()
	defer c.mu.Unlock()
	return le.caller.Mode()
}

// Token returns the fencing token. It is higher than those of the exclusive holds on the name
// before it; that of an exclusive lease is higher than those of the shared holds too. The store's
// Guarantees say how far that holds (P3). It does not change during the life of the lease, except
// by Downgrade. 0: the store gives none.
func (le *Lease) Token() Token {
	c := le.client
	c.mu.Lock()
	defer c.mu.Unlock()
	return le.caller.Token()
}

// Degraded reports whether the lease is in a second store, because the first is silent (package
// fallback). It then excludes only those who use the second store too, and its token is 0. It does
// not change during the life of the lease.
func (le *Lease) Degraded() bool {
	c := le.client
	c.mu.Lock()
	defer c.mu.Unlock()
	return le.caller.Degraded()
}

// Sequencer returns name, mode and token as one opaque line of printable ASCII, to be handed to the
// guard of the resource: see Client.CheckSequencer and package fence. A hold whose sequencer was
// asked for goes back to the store when it is released, also where others in the process wait.
func (le *Lease) Sequencer() string {
	c := le.client
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stepLocked(&engine.Event{Kind: engine.Shown, Caller: &le.caller})
	return driver.Sequencer{
		Name: c.opts.Prefix + le.Name(), Mode: le.caller.Mode(), Token: le.caller.Token(),
	}.String()
}

// Grant returns the hold as its driver knows it. It is for packages that belong to one store, such
// as the guards for data beside the locks: a hold of which the grant was asked for goes back to the
// store when it is released, also where others in the process wait. To learn whether the lease is
// trusted use Err: Since and Valid say no more.
func (le *Lease) Grant() driver.Grant {
	c := le.client
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stepLocked(&engine.Event{Kind: engine.Shown, Caller: &le.caller})
	return c.engine.Grant(&le.caller)
}

// Err returns nil while the lease can be trusted, and after that always the same *LostError or
// ErrReleased. It reads the clock, so it is right at every instant, whatever timers and the network
// do (P2).
func (le *Lease) Err() error {
	for {
		if e := le.end.Load(); e != nil {
			return e.err
		}
		if le.client.clock.Now() < le.caller.Until() {
			return nil
		}
		// The clock decides, not whether a timer has fired.
		if le.client.step(engine.Event{Kind: engine.Checked, Caller: &le.caller}).Do == engine.Yes {
			return nil // it was renewed at this moment
		}
	}
}

// Done returns a channel that is closed when Err is no longer nil: at the release, or at the loss,
// as soon as the process runs.
func (le *Lease) Done() <-chan struct{} {
	c := le.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if le.end.Load() != nil && (le.audience == nil || le.audience.done == nil) {
		return endedChannel
	}
	a := le.audienceLocked()
	if a.done == nil {
		a.done = make(chan struct{})
	}
	return a.done
}

// audienceLocked returns the audience, made if there is none.
func (le *Lease) audienceLocked() *audience {
	if le.audience == nil {
		le.audience = &audience{}
	}
	return le.audience
}

// ValidUntil returns the present trust deadline, by the present wall clock. Use it to show and to
// estimate; Err decides.
func (le *Lease) ValidUntil() time.Time {
	return le.client.wall(le.caller.Until())
}

// String returns what the lease is, for logs: its name, token and remaining time of trust, or why it is
// over. It does not show what could release the hold.
func (le *Lease) String() string {
	state := ""
	if err := le.Err(); err == nil {
		state = fmt.Sprintf("trusted for %v", max(0, time.Until(le.ValidUntil())).Round(time.Millisecond))
	} else {
		state = strings.TrimPrefix(err.Error(), "holdfast: ")
	}
	if t := le.Token(); t != 0 {
		return fmt.Sprintf("lease on %q, token %d: %s", le.Name(), t, state)
	}
	return fmt.Sprintf("lease on %q: %s", le.Name(), state)
}

// Format implements fmt.Formatter: every verb writes what String returns, %q in quotes. Without it %#v
// and %d would show the inside of the lease, and with it what could release the hold.
func (le *Lease) Format(s fmt.State, verb rune) {
	if verb == 'q' {
		fmt.Fprintf(s, "%q", le.String())
		return
	}
	io.WriteString(s, le.String())
}

// Renew renews the lease now. Use it to be sure of the lease before something begins, or if
// Options.RenewEvery has switched renewal off. It returns nil if the TTL has started again, and the
// error of Err if the lease is over. It returns ErrMaxHold if the lease goes on but must not become
// longer (Options.MaxHold). Any other error is the store's; the lease is then in doubt.
func (le *Lease) Renew(ctx context.Context) error {
	const op = "renew"
	if ctx == nil {
		return errNilContext(op)
	}
	if err := le.Err(); err != nil {
		return failed(op, le.Name(), err)
	}
	c := le.client
	if err := c.start(); err != nil {
		return failed(op, le.Name(), err)
	}
	defer c.stop()
	next := c.step(engine.Event{Kind: engine.RenewCalled, Caller: &le.caller})
	if next.Do == engine.Ask {
		r := c.renew1(ctx, next.Grant)
		next = c.step(engine.Event{
			Kind: engine.RenewAnswered, Caller: &le.caller, Grant: next.Grant, Renewal: r,
		})
	}
	return le.result(op, next.Err)
}

// result returns why the lease is over, or else err, as the error of an operation on the lease.
func (le *Lease) result(op string, err error) error {
	if over := le.Err(); over != nil {
		err = over
	}
	if err != nil {
		return failed(op, le.Name(), err)
	}
	return nil
}

// Reenter returns one more lease on the same hold. The hold is released when the last of its leases
// is; a loss ends all of them. It costs no round trip, and the store shows one hold.
func (le *Lease) Reenter() (*Lease, error) {
	again, err := le.share(Shared)
	if err != nil {
		return nil, failed("reenter", le.Name(), err)
	}
	return again, nil
}

// share returns one more lease on the hold. The error is ErrDeadlock if mode is Exclusive and the
// hold is not.
func (le *Lease) share(mode Mode) (*Lease, error) {
	if err := le.Err(); err != nil {
		return nil, err
	}
	c := le.client
	other := &Lease{client: c}
	le.caller.InitSharer(&other.caller, other)
	next := c.step(engine.Event{
		Kind: engine.Shared, Caller: &le.caller, Other: &other.caller, Mode: mode,
	})
	if next.Do == engine.Yes {
		return other, nil
	}
	if err := le.Err(); err != nil {
		return nil, err
	}
	return nil, ErrDeadlock
}

// Downgrade turns an exclusive hold into a shared one without a gap: nobody can hold the name
// exclusively in between. It is refused while the hold has other leases, which rely on holding the
// name alone. After an error that is neither a loss nor ErrUnsupported the lease counts as shared, because
// the store may have downgraded it; Downgrade may be called again.
func (le *Lease) Downgrade(ctx context.Context) error {
	const op = "downgrade"
	if ctx == nil {
		return errNilContext(op)
	}
	c := le.client
	d, ok := driver.As[driver.Downgrader](c.driver, driver.OpDowngrade)
	if !ok || !c.caps.Shared {
		return failed(op, le.Name(), ErrUnsupported)
	}
	if err := le.Err(); err != nil {
		return failed(op, le.Name(), err)
	}
	if err := c.start(); err != nil {
		return failed(op, le.Name(), err)
	}
	defer c.stop()
	next := c.step(engine.Event{Kind: engine.DowngradeCalled, Caller: &le.caller})
	if next.Do == engine.RenewFirst {
		if err := le.Renew(ctx); err != nil {
			return err
		}
		next = c.step(engine.Event{Kind: engine.DowngradeCalled, Caller: &le.caller})
	}
	if next.Do == engine.Ask {
		g, err := d.Downgrade(ctx, next.Grant)
		next = c.step(engine.Event{
			Kind: engine.DowngradeAnswered, Caller: &le.caller, Grant: g, Err: err,
		})
	}
	return le.result(op, next.Err)
}
