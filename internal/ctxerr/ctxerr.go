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
// wraps both. A context whose deadline has passed counts as ended, even if its timer has not
// run yet: a library that sets the deadline on its connection can return before. Of nil it
// returns nil.
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
