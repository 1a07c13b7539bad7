package holdfast

import (
	"errors"
	"fmt"
	"strings"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/core/engine"
)

// The errors to match with errors.Is. Each error of this package names the operation and the lock,
// and wraps one of these where one applies.
var (
	// ErrHeld: another holds the name, the name is closed, or others come first. TryAcquire returns
	// it, and an Acquire whose context ended while it waited. The details are in a *HeldError.
	ErrHeld = driver.ErrHeld
	// ErrNotHeld: there is no such hold, or no longer.
	ErrNotHeld = driver.ErrNotHeld
	// ErrLost: the lease was lost before it was released. The details are in a *LostError.
	ErrLost = errors.New("lock lost")
	// ErrBroken: the lease was lost because an operator broke it.
	ErrBroken = driver.ErrBroken
	// ErrMaxHold: the lease is no longer renewed, or was lost, because Options.MaxHold is over.
	ErrMaxHold = engine.ErrMaxHold
	// ErrReleased: the lease has been released.
	ErrReleased = engine.ErrReleased
	// ErrDeadlock: the context already holds this name, so the wait would never end.
	ErrDeadlock = errors.New("already held by this context")
	// ErrMismatch: the name is in use as another kind of lock, or as a semaphore with another
	// number of slots.
	ErrMismatch = driver.ErrMismatch
	// ErrUnsupported: the store cannot do this.
	ErrUnsupported = driver.ErrUnsupported
	// ErrUncertain: the store has not confirmed the operation. What may be held is released in the
	// background until the store confirms that or the TTL is over.
	ErrUncertain = driver.ErrUncertain
	// ErrClosed: the client has been closed.
	ErrClosed = driver.ErrClosed
)

// HeldError is ErrHeld with what is known of the holder: its note and token, how many wait, and
// when it is worth asking again. The fields are shown by go doc driver.HeldError.
type HeldError = driver.HeldError

// LostError is ErrLost with the reason: ErrBroken, ErrNotHeld, ErrMaxHold, or the store's errors
// that prevented the renewal in time.
type LostError struct {
	Name   string
	Token  Token
	Reason error
}

// Error says which lock was lost and why.
func (e *LostError) Error() string {
	return fmt.Sprintf("holdfast: lock %q (token %d) lost: %v", e.Name, e.Token, e.Reason)
}

// Is makes a LostError match ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns the reason.
func (e *LostError) Unwrap() error { return e.Reason }

// opError says in which operation on which lock errs happened. The first of errs says most;
// errors.Is and errors.As reach all of them.
type opError struct {
	op, name string
	errs     []error
}

func (e *opError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "holdfast: %s %q", e.op, e.name)
	for i, err := range e.errs {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		b.WriteString(sep)
		b.WriteString(err.Error())
	}
	return b.String()
}

func (e *opError) Unwrap() []error { return e.errs }

// failed makes an opError of the errors that are not nil. It stays out of its callers' frames: a
// thousand goroutines that wait in Acquire have stacks of half the size.
//
//go:noinline
func failed(op, name string, errs ...error) error {
	e := &opError{op: op, name: name}
	for _, err := range errs {
		if err != nil {
			e.errs = append(e.errs, err)
		}
	}
	return e
}

func errNilContext(op string) error {
	return fmt.Errorf("holdfast: %s: the context is nil; use context.Background()", op)
}

var errNilFunc = errors.New("the function is nil")
