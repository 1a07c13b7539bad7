//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/zklock"
)

// patience says for how long run tries again what a store could not do at the moment. A server that accepts
// a hundred connections refuses the rest of two hundred processes until some of the first have ended.
type patience struct {
	none  bool          // -n: nothing is tried again
	quiet bool          // nothing is said of it
	wait  time.Duration // -w; 0: it is not given
	until time.Time     // when -w is over; it covers the opening too
}

// persist calls try until it succeeds, fails in a way that will not pass, or the patience is at its end: that
// of -w, or as long as an operation may take.
func persist[T any](ctx context.Context, p patience, try func(context.Context) (T, error)) (T, error) {
	const first, longest = 50 * time.Millisecond, time.Second
	var end <-chan time.Time
	for pause := first; ; pause = min(2*pause, longest) {
		got, err := try(ctx)
		if err == nil || ctx.Err() != nil || !p.mayRetry(err) {
			return got, err
		}
		if end == nil {
			end = time.After(max(time.Until(p.until), openWithin))
			if !p.quiet && term.IsTerminal(int(os.Stderr.Fd())) {
				complain(fmt.Errorf("waiting for the store: %w", err))
			}
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)): // random, so that a crowd does not come back all at once
		case <-end:
			return got, err
		case <-ctx.Done():
			return got, err
		}
	}
}

// mayRetry reports whether an attempt that failed with err may be followed by another one. A server that
// does not answer, or from which another may take over, is tried again only with -w, because it may be gone.
// A server that is not there, refuses a password or has no such database is reported at once.
func (p patience) mayRetry(err error) bool {
	says := func(words string) bool { return strings.Contains(err.Error(), words) }
	network, _ := errors.AsType[net.Error](err)
	silent := network != nil && network.Timeout() || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		status.Code(err) == codes.DeadlineExceeded || errors.Is(err, io.EOF)
	failingOver := errors.Is(err, redislock.ErrFailover) || says("read only connection") // pgx, of a standby
	switch {
	case p.none:
		return false
	case p.wait > 0 && (silent || failingOver):
		return true
	case errors.Is(err, zklock.ErrHungUp), status.Code(err) == codes.ResourceExhausted, slices.ContainsFunc(busyWords, says):
		return true
	case status.Code(err) == codes.Unavailable: // gRPC says so too of a server that is not there
		return !says("rror while dialing") && !says("tls: ")
	}
	errno, _ := errors.AsType[syscall.Errno](err)
	return slices.Contains(busyErrnos, errno)
}

// busyWords are in the answers of servers that have too many connections, or too much to do at present. The
// numbers are of "PostgreSQL Error Codes" and of MySQL's "Server Error Message Reference".
var busyWords = []string{
	"ERR max number of clients", "LOADING ", "BUSY ", "TRYAGAIN ", "CLUSTERDOWN ", "MASTERDOWN ",
	"SQLSTATE 53", "SQLSTATE 57P03", "SQLSTATE 40001", "SQLSTATE 40P01", "SQLSTATE 55P03",
	"Error 1040", "Error 1041", "Error 1135", "Error 1203", "Error 1205", "Error 1213", "Error 1226",
	"SQLITE_BUSY", "SQLITE_LOCKED", "database is locked",
}

// busyErrnos say that this host has too many sockets, or that a server has closed a connection with a refusal
// that was not read.
var busyErrnos = []syscall.Errno{
	syscall.EAGAIN, syscall.ECONNRESET, syscall.EPIPE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS, syscall.EMFILE, syscall.ENFILE,
}

// take waits for the lock, until the time of -w is over. If the store has said nothing by then, the lock is
// asked for once more: a short wait on a busy host does not mean that the store is gone.
func (r *runner) take(ctx context.Context) (*holdfast.Lease, error) {
	if r.none {
		return r.fresh(ctx, r.lock.TryAcquire)
	}
	waiting := ctx
	if r.wait > 0 {
		var stop context.CancelFunc
		waiting, stop = context.WithDeadline(ctx, r.until)
		defer stop()
	}
	lease, err := persist(waiting, r.patience, func(ctx context.Context) (*holdfast.Lease, error) {
		for {
			lease, err := r.fresh(ctx, r.lock.Acquire)
			// A claim that ended before it was renewed is no loss: nothing has run yet.
			if !errors.Is(err, holdfast.ErrLost) {
				return lease, err
			}
		}
	})
	if waiting.Err() != nil && errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, holdfast.ErrHeld) {
		ctx, cancel := context.WithTimeout(ctx, openWithin)
		defer cancel()
		return r.fresh(ctx, r.lock.TryAcquire)
	}
	return lease, err
}

// fresh takes the lock, and renews a lease that has little time left: a hold that was handed over after a
// wait is a short claim at first, and the grace would begin at once.
func (r *runner) fresh(ctx context.Context, take func(context.Context) (*holdfast.Lease, error)) (*holdfast.Lease, error) {
	lease, err := take(ctx)
	if err != nil {
		return nil, err
	}
	left := time.Until(lease.ValidUntil())
	if left >= r.flags.slack(r.store.Caps()) {
		return lease, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), left)
	defer cancel()
	if err := lease.Renew(ctx); err != nil && !errors.Is(err, holdfast.ErrMaxHold) {
		lease.ReleaseNow()
		return nil, err
	}
	return lease, nil
}
