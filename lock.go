package holdfast

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfastlock/holdfast/internal/core/engine"
	"github.com/holdfastlock/holdfast/internal/ctxerr"
)

// Lock is a name and how to hold it. It has no state and does no I/O: make one whenever it is
// convenient, and use it from any goroutine. If its name or its options are wrong, each use returns
// an error before any I/O (P10).
type Lock struct {
	name     string
	settings *settings
}

// Name returns the name without the client's prefix.
func (l *Lock) Name() string { return l.name }

// Acquire blocks until the lock is held and returns its lease. The lease is renewed until it is
// released or the client is closed: release it.
//
// The context bounds the wait only; the lease outlives it (P11). If it ends first, the error wraps
// the context's error, ErrHeld if the lock was known to be held, and the store's last error if
// there was one. An Acquire that returns an error holds nothing and waits for nothing (P6): if the
// outcome is not known, it is withdrawn in the background.
//
// Until the store has answered once, Acquire returns the store's errors at once; after that it
// retries while the context lasts. While 16384 acquires and releases of the client await a store that
// does not answer, a further acquire does not ask the store: it returns the store's error, or retries
// as above.
//
// The goroutines of one client are served in the order in which they came. Where Caps.Fair, clients
// are served in the order of the store's queue, each for one hold or, where Caps.TokenBlock allows,
// for as many as begin within 10 ms. If other clients were queued at the grant, these are as many as begin
// within 2 ms, of goroutines that waited then.
//
// If the context already holds the name (see Lease.WithContext and Lock.Do) the error is
// ErrDeadlock; with Options.Reentrant the outer hold is joined instead.
func (l *Lock) Acquire(ctx context.Context) (*Lease, error) {
	return l.acquire(ctx, "acquire", false)
}

// TryAcquire takes the lock if it is free, and does not wait for it. Otherwise the error is
// ErrHeld, with details in a *HeldError where the store has them. It still asks the store, which
// the context bounds. If the context holds the name itself, the error is both ErrHeld and
// ErrDeadlock.
func (l *Lock) TryAcquire(ctx context.Context) (*Lease, error) {
	return l.acquire(ctx, "try", true)
}

// Do acquires the lock, runs fn, and releases the lock, also if fn panics. Its context bounds the wait
// and the work: to bound the wait only, use Acquire.
//
// The context given to fn ends when the lock can no longer be trusted; its cause is then the
// *LostError. It carries the hold, so that goroutines started under it count as the holder (see
// Lease.WithContext).
//
// Do returns the error of fn joined with that of the release, so a section that may have run
// unprotected is never reported as a success. If fn panics, only Events tell of the release's error.
func (l *Lock) Do(ctx context.Context, fn func(context.Context, *Lease) error) error {
	if err := l.check(ctx, "do"); err != nil {
		return err
	}
	if fn == nil {
		return failed("do", l.name, errNilFunc) // before any I/O (P10)
	}
	lease, err := l.Acquire(ctx)
	if err != nil {
		return err
	}
	return protect(ctx, lease, func(ctx context.Context) error { return fn(ctx, lease) })
}

// releaser is a Lease or a MultiLease.
type releaser interface {
	WithContext(context.Context) (context.Context, context.CancelFunc)
	Release() error
}

// protect runs fn under a context of the lease and releases it.
func protect(ctx context.Context, lease releaser, fn func(context.Context) error) (err error) {
	ctx, cancel := lease.WithContext(ctx)
	defer func() {
		cancel()
		err = errors.Join(err, lease.Release())
	}()
	return fn(ctx)
}

// check returns what forbids an operation before it begins.
func (l *Lock) check(ctx context.Context, op string) error {
	switch {
	case ctx == nil:
		return errNilContext(op)
	case l.settings.err != nil:
		return failed(op, l.name, l.settings.err)
	case ctx.Err() != nil:
		return failed(op, l.name, ctxerr.Cause(ctx))
	}
	return nil
}

// acquire is Acquire and TryAcquire.
func (l *Lock) acquire(ctx context.Context, op string, try bool) (*Lease, error) {
	if err := l.check(ctx, op); err != nil {
		return nil, err
	}
	if trace := l.settings.client.opts.Trace; trace != nil {
		return l.acquireTraced(ctx, trace, op, try)
	}
	return l.acquireChecked(ctx, nil, op, try)
}

// acquireChecked acquires a lock that check has passed. Traced is the context for the events of the hold; nil:
// none.
func (l *Lock) acquireChecked(ctx, traced context.Context, op string, try bool) (*Lease, error) {
	if lease, err := l.nested(ctx, try); err != nil {
		return nil, failed(op, l.name, err)
	} else if lease != nil {
		return lease, nil
	}
	c := l.settings.client
	lease := &Lease{client: c}
	lease.core.Init(c.core, l.name, &l.settings.Settings, try, traced)
	if reasons := c.core.Acquire(ctx, &lease.core, try); reasons != nil {
		return nil, failed(op, l.name, reasons...)
	}
	return lease, nil
}

// nested checks for holds on the lock's name that the context already has. It returns a lease if
// the lock joins one of them, and ErrDeadlock if the caller would wait for itself.
func (l *Lock) nested(ctx context.Context, try bool) (*Lease, error) {
	held, _ := ctx.Value(heldKey{}).(*heldList)
	permits := l.settings.Permits
	var seen []*engine.Hold
	for ; held != nil; held = held.outer {
		h := held.lease.core.Hold()
		other := held.lease.client != l.settings.client || held.lease.Name() != l.name
		if other || slices.Contains(seen, h) || held.lease.Err() != nil {
			continue
		}
		seen = append(seen, h)
		mode := held.lease.Mode()
		switch {
		case (mode == Slot) != (l.settings.Mode == Slot):
			// Another kind of lock: the store returns ErrMismatch.
		case mode == Slot:
			if permits += held.lease.core.Permits(); permits > l.settings.Slots {
				return nil, deadlock(try)
			}
		case !l.settings.reentrant:
			return nil, deadlock(try)
		default:
			lease, err := held.lease.share(l.settings.Mode)
			if errors.Is(err, ErrDeadlock) {
				return nil, deadlock(try)
			}
			if err == nil {
				return lease, nil
			} // else it has just ended, and the context does not hold the name by it
		}
	}
	return nil, nil
}

// deadlock returns ErrDeadlock; for a try it is ErrHeld too.
func deadlock(try bool) error {
	if try {
		return fmt.Errorf("%w: %w", ErrHeld, ErrDeadlock)
	}
	return ErrDeadlock
}
