//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/cmd/holdfast/internal/child"
	"github.com/holdfastlock/holdfast/driver"
)

// find looks for the command, before anything is taken.
func find(program string) (string, error) {
	path, err := exec.LookPath(program)
	switch {
	case err == nil || errors.Is(err, exec.ErrDot):
		return path, nil
	case errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist):
		return "", &exitError{exitNotFound, fmt.Errorf("command %q was not found", program)}
	case errors.Is(err, fs.ErrPermission):
		return "", &exitError{exitCannotRun, fmt.Errorf("command %q may not be executed: its file needs the permission x", program)}
	case errors.Is(err, syscall.EISDIR):
		return "", &exitError{exitCannotRun, fmt.Errorf("command %q cannot be executed: it is a directory", program)}
	}
	return "", &exitError{exitCannotRun, fmt.Errorf("command %q cannot be executed: %w", program, errors.Unwrap(err))}
}

// run is the command run.
func (a *app) run(f *runFlags, name string, command []string) error {
	return a.supervise(f, name, command, func(r *runner) error {
		want, outer := f.wanted(r.store, name), inherited()
		ctx, cancel := context.WithTimeout(context.Background(), openWithin)
		joined, err := r.store.outerHold(ctx, want, outer)
		cancel()
		if err != nil {
			return err
		}
		if joined != nil {
			return become(r.path, command, environment(name, *joined, outer), r.store)
		}
		// Until here a signal may just end us: there is nothing to give back.
		signal.Notify(r.signals, child.Signals()...)
		_, err = r.term()
		return err
	})
}

// supervise checks all that can be checked before the lock is asked for, does the
// work, and closes the store.
func (a *app) supervise(f *runFlags, name string, command []string, work func(*runner) error) (result error) {
	path, err := find(command[0])
	if err != nil {
		return err
	}
	s, err := a.open(context.Background(), holdfast.Events{Waiting: waitingHint})
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 64)
	defer func() { closeStore(s, signals, result) }()
	lock := f.lock(s, name, command)
	if err := probe(lock); err != nil {
		return err
	}
	grace, err := f.graceFor(s.Caps())
	if err != nil {
		return err
	}
	return work(&runner{store: s, lock: lock, flags: f, signals: signals, name: name, path: path, command: command, grace: grace})
}

func startError(program string, err error) error {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return &exitError{exitInternal, err}
	}
	why := errno.Error()
	switch errno {
	case syscall.ENOENT:
		why = "the interpreter in its first line was not found"
	case syscall.ENOEXEC:
		why = "it is neither a program for this system nor a script with an interpreter in its first line"
	case syscall.EAGAIN, syscall.ENOMEM:
		return &exitError{exitInternal, fmt.Errorf("command %q cannot be started: %w", program, err)}
	}
	return &exitError{exitCannotRun, fmt.Errorf("command %q cannot be executed: %s", program, why)}
}

// probe returns what is wrong with the lock's options, before any I/O: an ended
// context lets nothing else come out (P10).
func probe(lock *holdfast.Lock) error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := lock.TryAcquire(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return usagef("%w", err)
	}
	return nil
}

// become replaces this process by the command.
func become(path string, command, env []string, s *store) error {
	if err := s.Close(); err != nil {
		return storeError(err)
	}
	return startError(command[0], syscall.Exec(path, command, env))
}

// acquire waits for the lock, or for a reason to give up.
func (f *runFlags) acquire(lock *holdfast.Lock, signals <-chan os.Signal) (*holdfast.Lease, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	if f.waitSet && !f.nonblock {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, f.wait)
		defer stop()
	}
	type result struct {
		lease *holdfast.Lease
		err   error
	}
	done := make(chan result, 1)
	go func() {
		take := lock.Acquire
		if f.nonblock {
			take = lock.TryAcquire
		}
		lease, err := take(ctx)
		done <- result{lease, err}
	}()
	var by syscall.Signal
	for {
		select {
		case r := <-done:
			switch {
			case by != 0:
				if r.lease != nil {
					r.lease.ReleaseNow()
				}
				return nil, &exitError{exitSignal + int(by), nil}
			case r.err != nil:
				return nil, f.notAcquired(r.err)
			}
			return r.lease, nil
		case s := <-signals:
			if by != 0 && ends(s) {
				// The second one: what is under way ends with its TTL.
				os.Exit(exitSignal + int(s.(syscall.Signal)))
			}
			if ends(s) {
				by = s.(syscall.Signal)
				cancel(errors.New("a signal came"))
			}
		}
	}
}

// refresh gives the lease its full TTL: what was handed over after a wait is a
// short claim at first, and the grace must not begin because of that. No command
// runs yet, so a failure loses nothing.
func (f *runFlags) refresh(lease *holdfast.Lease, caps holdfast.Caps) error {
	left := time.Until(lease.ValidUntil())
	if left >= f.slack(caps) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), left)
	defer cancel()
	if err := lease.Renew(ctx); err != nil && !errors.Is(err, holdfast.ErrMaxHold) {
		lease.ReleaseNow()
		return storeError(err)
	}
	return nil
}

// ends reports whether a signal ends the wait for the lock.
func ends(s os.Signal) bool {
	switch s {
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
		return true
	}
	return false
}

// notAcquired gives the error of an acquire its exit code.
func (f *runFlags) notAcquired(err error) error {
	switch {
	case errors.Is(err, holdfast.ErrHeld):
		return &exitError{f.conflict, heldText(err)}
	case errors.Is(err, holdfast.ErrMismatch), errors.Is(err, holdfast.ErrUnsupported):
		return usagef("%w", err)
	}
	return storeError(err)
}

// heldText says who holds the lock, as far as it is known.
func heldText(err error) error {
	var detail *holdfast.HeldError
	if !errors.As(err, &detail) {
		return errors.New("the lock is held")
	}
	return fmt.Errorf("lock %q is %w", detail.Name, detail)
}

// waitingHint tells somebody at a terminal why nothing happens.
func waitingHint(e holdfast.Event) {
	if term.IsTerminal(int(os.Stderr.Fd())) {
		fmt.Fprintf(os.Stderr, "holdfast: waiting: %s\n", oneLine(heldText(e.Err)))
	}
}

// closeStore closes the store, which may take some seconds if it does not
// answer. Signals that come meanwhile end it; and after a loss there is little
// left to give back, and nothing new to say of it.
func closeStore(s *store, signals <-chan os.Signal, result error) {
	done := make(chan error, 1)
	go func() { done <- s.Close() }()
	var exit *exitError
	var enough <-chan time.Time
	if errors.As(result, &exit) && exit.code == exitLost {
		enough = time.After(closeAfterLoss)
	}
	for {
		select {
		case err := <-done:
			if err != nil && enough == nil {
				complain(err)
			}
			return
		case <-enough:
			return
		case sig := <-signals:
			if ends(sig) {
				return
			}
		}
	}
}

// closeAfterLoss is how long the store has to forget a hold that was lost. If it
// does not, the hold ends by itself.
const closeAfterLoss = 500 * time.Millisecond

// graceFor returns how long before the trust deadline the command is told to
// end. It must not begin while renewals are still on time: a grace that does not
// fit is refused, and the default is made to fit.
func (f *runFlags) graceFor(caps holdfast.Caps) (time.Duration, error) {
	limit := f.slack(caps)
	if !f.graceSet {
		return min(defaultGrace, limit/2), nil
	}
	if f.grace >= limit {
		return 0, usagef("--grace is %v: with a TTL of %v it must be less than %v, the time from a renewal's turn to the last moment of trust", f.grace, f.effectiveTTL(caps), limit.Truncate(time.Millisecond))
	}
	return f.grace, nil
}

// slack is how long the lease is trusted when its renewal is due.
func (f *runFlags) slack(caps holdfast.Caps) time.Duration {
	ttl := f.effectiveTTL(caps)
	return ttl - ttl/3 - leaseMargin(ttl)
}

// effectiveTTL is the TTL that the lock has: see holdfast.Options.
func (f *runFlags) effectiveTTL(caps holdfast.Caps) time.Duration {
	if f.ttl != 0 {
		return f.ttl
	}
	ttl := max(holdfast.DefaultTTL, caps.MinTTL)
	if caps.MaxTTL > 0 {
		ttl = min(ttl, caps.MaxTTL)
	}
	return ttl
}

// trustedUntil is the lease's trust deadline as an instant. The clock is read
// first, so that a pause between the two looks makes it earlier, never later.
func trustedUntil(lease *holdfast.Lease) driver.Instant {
	now := driver.HostClock.Now()
	return now.Add(time.Until(lease.ValidUntil()))
}
