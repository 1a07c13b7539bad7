//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/pause"
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
	got, by := awaitUnlessAsked(done, r.signals)
	if by == 0 {
		return got.lease, got.err
	}
	cancel()
	got, again := awaitUnlessAsked(done, r.signals)
	if again != 0 { // the second signal does not wait for the store, which forgets us after a TTL
		os.Exit(exitSignal + int(again))
	}
	if got.lease != nil {
		got.lease.ReleaseNow()
	}
	return nil, &exitError{exitSignal + int(by), nil}
}

// awaitUnlessAsked waits for what comes from a channel, or returns the signal that asks for the end.
func awaitUnlessAsked[T any](done <-chan T, signals <-chan os.Signal) (got T, by syscall.Signal) {
	for {
		select {
		case got = <-done:
			return got, 0
		case s := <-signals:
			if asksForEnd(s) {
				return got, s.(syscall.Signal)
			}
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
	}
	return operationError(err)
}

// heldText says who holds the lock, as far as it is known.
func heldText(err error) error {
	if detail, ok := errors.AsType[*holdfast.HeldError](err); ok {
		return fmt.Errorf("lock %q is %w", detail.Name, detail)
	}
	return errors.New("the lock is held")
}

// take waits for the lock, until the time of -n or -w is over. If the store has said nothing by then, the lock is asked
// for once more: a short wait on a busy host does not mean that the store is gone. The error has an exit code.
func (r *runner) take(ctx context.Context) (*holdfast.Lease, error) {
	waiting, ask := ctx, r.lock.Acquire
	try := func(ctx context.Context) (*holdfast.Lease, error) {
		lease, err := r.fresh(ctx, ask)
		return lease, r.flags.notAcquired(err)
	}
	if !r.flags.nonblock {
		if r.flags.wait > 0 {
			var stop context.CancelFunc
			waiting, stop = context.WithDeadline(ctx, r.flags.until)
			defer stop()
		}
		lease, err := persist(waiting, r.flags, try)
		if waiting.Err() == nil || codeOf(err) != exitUnavailable || lasting(err) {
			return lease, err
		}
	}
	ctx, cancel := r.flags.bounded(ctx)
	defer cancel()
	ask = r.lock.TryAcquire
	return try(ctx)
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
		if left >= r.flags.slack() {
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

// persist calls try until it succeeds, the lock is held, the store fails in a way that lasts, or the time of -w is over:
// a store that does not work may soon do. Without -w it is called once.
func persist[T any](ctx context.Context, f *runFlags, try func(context.Context) (T, error)) (T, error) {
	pauses := pause.Backoff{Min: 50 * time.Millisecond, Max: time.Second}
	for told := f.quiet; ; told = true {
		got, err := try(ctx)
		if codeOf(err) != exitUnavailable || lasting(err) || f.wait == 0 || ctx.Err() != nil || time.Now().After(f.until) {
			return got, err
		}
		if !told {
			tellWaiting(fmt.Errorf("the store is not ready: %w", err))
		}
		if !pause.Sleep(ctx, pauses.Next()) {
			return got, err
		}
	}
}
