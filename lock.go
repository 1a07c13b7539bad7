package holdfast

import (
	"context"
	"errors"
)

// Lock is a name and how to hold it. It holds no state and does no I/O: make
// one whenever it is convenient, and use it from any goroutine. What is wrong
// with its name or options is returned by each use, before any I/O (P10).
type Lock struct {
	name     string
	settings *settings
}

// Name returns the name, without the client's prefix.
func (l *Lock) Name() string { return l.name }

// Acquire waits until it has the lock, and returns the lease that it has it by.
// The lease is renewed until it is released or the client is closed: release it.
//
// The context bounds the wait only; the lease outlives it (P11). When it ends
// first, the error is that of the context, and ErrHeld if the lock was known to
// be held, with the last error of the store if there was one. An Acquire that
// returns an error holds nothing and waits for nothing (P6). Before the store
// has answered at all its errors are returned at once; after that they are
// retried while the context lasts.
//
// What is uncertain when the context ends is withdrawn in the background. While 16384
// acquires and releases of the client await a store that does not answer, another acquire
// asks the store nothing: it fails with the store's error, or retries as above.
//
// Those who wait in one client are served in the order in which they came; clients,
// where Caps.Fair, in turns of one hold or, where Caps.TokenBlock allows, of as many as
// begin within 10 ms.
//
// If the context already holds the name (see Lease.WithContext and Lock.Do) the
// error is ErrDeadlock, or, with Options.Reentrant, the outer hold is joined.
func (l *Lock) Acquire(ctx context.Context) (*Lease, error) {
	return l.acquire(ctx, "acquire", false)
}

// TryAcquire takes the lock if it is free, and does not wait for it: otherwise
// the error is ErrHeld, with details in a *HeldError where the store has them.
// It still asks the store, which the context bounds. Where the context holds the
// name itself, the error is both ErrHeld and ErrDeadlock.
func (l *Lock) TryAcquire(ctx context.Context) (*Lease, error) {
	return l.acquire(ctx, "try", true)
}

// Do acquires the lock, runs fn, and releases the lock, also when fn panics.
// The context given to fn ends when the lock cannot be trusted any more, with
// the *LostError as its cause, and carries the hold for the detection of
// deadlocks: goroutines started under it are the holder too. Do returns the
// error of fn joined with that of the release, so a section that may have run
// unprotected is never reported as a success; when fn panics, Events alone tell
// of the release.
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

var errNilFunc = errors.New("the function is nil")

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
		return failed(op, l.name, ended(ctx))
	}
	return nil
}
