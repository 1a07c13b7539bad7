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

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/zklock"
)

// acquire waits for the lock, until the time of -w is over or a signal ends the wait.
func (r *runner) acquire() (*holdfast.Lease, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	type result struct {
		lease *holdfast.Lease
		err   error
	}
	done := make(chan result, 1)
	go func() {
		lease, err := r.take(ctx)
		done <- result{lease, err}
	}()
	var by syscall.Signal
	for {
		select {
		case got := <-done:
			switch {
			case by != 0:
				if got.lease != nil {
					got.lease.ReleaseNow()
				}
				return nil, &exitError{exitSignal + int(by), nil}
			case got.err != nil:
				return nil, r.flags.notAcquired(got.err)
			}
			return got.lease, nil
		case s := <-r.signals:
			if !asksForEnd(s) {
				continue
			}
			if by != 0 {
				// The second signal does not wait for the store, which forgets us after a TTL.
				os.Exit(exitSignal + int(s.(syscall.Signal)))
			}
			by = s.(syscall.Signal)
			cancel()
		}
	}
}

// asksForEnd reports whether a signal ends the wait for the lock.
func asksForEnd(s os.Signal) bool {
	switch s {
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
		return true
	}
	return false
}

// notAcquired gives the error of an acquire its exit code.
func (f *runFlags) notAcquired(err error) error {
	switch {
	case errors.Is(err, holdfast.ErrHeld) && (f.quiet || f.conflict == exitOK):
		return &exitError{f.conflict, nil} // cron would send a mail of what is as it should be
	case errors.Is(err, holdfast.ErrHeld):
		return &exitError{f.conflict, heldText(err)}
	case errors.Is(err, holdfast.ErrMismatch), errors.Is(err, holdfast.ErrUnsupported):
		return usagef("%w", err)
	}
	return storeError(err)
}

// heldText says who holds the lock, as far as it is known.
func heldText(err error) error {
	if detail, ok := errors.AsType[*holdfast.HeldError](err); ok {
		return fmt.Errorf("lock %q is %w", detail.Name, detail)
	}
	return errors.New("the lock is held")
}

// take waits for the lock, until the time of -w is over. If the store has said nothing by then, the lock is asked
// for once more: a short wait on a busy host does not mean that the store is gone.
func (r *runner) take(ctx context.Context) (*holdfast.Lease, error) {
	waiting, ask := ctx, r.lock.Acquire
	if r.flags.nonblock {
		ask = r.lock.TryAcquire
	}
	if r.flags.wait > 0 {
		var stop context.CancelFunc
		waiting, stop = context.WithDeadline(ctx, r.flags.until)
		defer stop()
	}
	lease, err := persist(waiting, r.flags, func(ctx context.Context) (*holdfast.Lease, error) { return r.fresh(ctx, ask) })
	if waiting.Err() != nil && errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, holdfast.ErrHeld) {
		ctx, cancel := context.WithTimeout(ctx, openWithin)
		defer cancel()
		return r.fresh(ctx, r.lock.TryAcquire)
	}
	return lease, err
}

// fresh takes the lock, and renews a lease that has little time left: a hold that was handed over after a wait is a
// short claim at first, and the grace would begin at once. A claim that has ended before is no loss, because nothing
// has run yet: the lock is asked for again.
func (r *runner) fresh(ctx context.Context, ask func(context.Context) (*holdfast.Lease, error)) (*holdfast.Lease, error) {
	for {
		lease, err := ask(ctx)
		if err != nil {
			return nil, err
		}
		left := time.Until(lease.ValidUntil())
		if left >= r.flags.slack(r.store.Caps()) {
			return lease, nil
		}
		renewing, cancel := context.WithTimeout(context.Background(), left)
		err = lease.Renew(renewing)
		cancel()
		if err == nil || errors.Is(err, holdfast.ErrMaxHold) {
			return lease, nil
		}
		lease.ReleaseNow()
		if !errors.Is(err, holdfast.ErrLost) {
			return nil, err
		}
	}
}

// persist calls try until it succeeds, fails in a way that will not pass, or the time of -w is over. Without -w it
// is called once.
func persist[T any](ctx context.Context, f *runFlags, try func(context.Context) (T, error)) (T, error) {
	const first, longest = 50 * time.Millisecond, time.Second
	for pause := first; ; pause = min(2*pause, longest) {
		got, err := try(ctx)
		if err == nil || f.wait == 0 || ctx.Err() != nil || time.Now().After(f.until) || !mayPass(err) {
			return got, err
		}
		if pause == first && !f.quiet {
			tellWaiting(fmt.Errorf("the store is not ready: %w", err))
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)): // random, so that a crowd does not come back all at once
		case <-ctx.Done():
			return got, err
		}
	}
}

// mayPass reports whether a store may soon be able to do what has failed with err. A server that is not there,
// refuses a password or has no such database will not.
func mayPass(err error) bool {
	says := func(words string) bool { return strings.Contains(err.Error(), words) }
	network, _ := errors.AsType[net.Error](err)
	errno, _ := errors.AsType[syscall.Errno](err)
	switch {
	case network != nil && network.Timeout(), errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		errors.Is(err, io.EOF), errors.Is(err, redislock.ErrFailover), errors.Is(err, zklock.ErrHungUp),
		slices.ContainsFunc(busyWords, says), slices.Contains(busyErrnos, errno):
		return true
	}
	switch status.Code(err) {
	case codes.DeadlineExceeded, codes.ResourceExhausted:
		return true
	case codes.Unavailable: // gRPC says so too of a server that is not there
		return !says("rror while dialing") && !says("tls: ")
	}
	return false
}

// busyWords are in the answers of servers that have too many connections, or too much to do at present. The
// numbers are of "PostgreSQL Error Codes" and of MySQL's "Server Error Message Reference".
var busyWords = []string{
	"ERR max number of clients", "LOADING ", "BUSY ", "TRYAGAIN ", "CLUSTERDOWN ", "MASTERDOWN ",
	"SQLSTATE 53", "SQLSTATE 57P03", "SQLSTATE 40001", "SQLSTATE 40P01", "SQLSTATE 55P03",
	"Error 1040", "Error 1041", "Error 1135", "Error 1203", "Error 1205", "Error 1213", "Error 1226",
	"SQLITE_BUSY", "SQLITE_LOCKED", "database is locked",
	"read only connection", // pgx, of a standby that may take over
}

// busyErrnos say that this host has too many sockets, or that a server has closed a connection with a refusal
// that was not read.
var busyErrnos = []syscall.Errno{
	syscall.EAGAIN, syscall.ECONNRESET, syscall.EPIPE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS, syscall.EMFILE, syscall.ENFILE,
}
