// Package ctxerr makes the error of a request say that the request's context has
// ended. Client libraries report that in words of their own ("i/o timeout", a gRPC
// status, a closed connection), which errors.Is does not know.
package ctxerr

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Of returns err, wrapped together with ctx's error if ctx has ended and err does
// not say so yet. A context whose deadline has passed counts as ended, although its
// timer may not have run yet: a library that sets the deadline on its connection
// can return before it. Nil stays nil.
func Of(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	why := ctx.Err()
	if deadline, ok := ctx.Deadline(); why == nil && ok && !time.Now().Before(deadline) {
		why = context.DeadlineExceeded
	}
	if why == nil || errors.Is(err, why) {
		return err
	}
	return fmt.Errorf("%w: %w", why, err)
}
