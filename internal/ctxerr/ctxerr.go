// Package ctxerr makes the error of a request match its context's error if the context has
// ended. Client libraries report the end of a context by errors of their own ("i/o timeout",
// a gRPC status, a closed connection), which errors.Is does not match.
package ctxerr

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Of returns err. If ctx has ended and err does not match its error, Of returns an error that
// wraps both: see Ended. Of nil it returns nil.
func Of(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	why := Ended(ctx)
	if why == nil || errors.Is(err, why) {
		return err
	}
	return fmt.Errorf("%w: %w", why, err)
}

// Ended returns why ctx has ended, or nil. A context whose deadline has passed counts as ended, even if its
// timer has not run yet: a library that sets the deadline on its connection, or a server that is told of it, can
// be quicker.
func Ended(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ctx.Err() == nil && ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// Cause returns the error of a context that has ended, with its cause if that says more. It is nil if the
// context has not ended.
func Cause(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || cause == err {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// Unanswered is the error of a call whose context ended before the store answered, where the driver
// knows what was in the way: that the servers refuse connections, for instance, or have no leader. Package
// holdfast tells the caller why, beside the end of the context. It matches both.
type Unanswered struct {
	Ended error // the context's error
	Why   error // what was in the way
}

// Error says both.
func (e *Unanswered) Error() string { return fmt.Sprintf("%v: %v", e.Ended, e.Why) }

// Unwrap returns both.
func (e *Unanswered) Unwrap() []error { return []error{e.Ended, e.Why} }
