//go:build unix

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/cmd/holdfast/internal/child"
	"github.com/holdfastlock/holdfast/driver"
)

// This file is `holdfast run` from top to bottom, in the order in which things happen:
//
//  1. withRunner checks all that can be checked before the lock is asked for.
//  2. run becomes the command at once if a run around this one holds the lock already.
//  3. hold waits for the lock (acquire) and starts the command with its guard (child.Start).
//  4. supervise waits for the command's end, passes signals on, and watches the trust deadline.
//     Beside it watchHold learns of an operator's break.
//  5. ended gives the lock back; or lost kills the command, and all that it has started.
//  6. closeStore closes the store.
//
// `holdfast elect` is the same with step 3 to 5 in a loop.

// runner runs a command under a lock.
type runner struct {
	store   *store
	lock    *holdfast.Lock
	flags   *runFlags
	signals chan os.Signal
	name    string
	path    string
	command []string
	grace   time.Duration
	patience
}

// run is the command run.
func (a *app) run(f *runFlags, name string, command []string) error {
	return a.withRunner(f, name, command, func(r *runner) error {
		want, outer := f.wanted(r.store, name), inherited()
		ctx, cancel := context.WithTimeout(context.Background(), openWithin)
		joined, err := r.store.outerHold(ctx, want, outer)
		cancel()
		if err != nil {
			return err
		}
		if joined != nil {
			env := environment(name, *joined, outer)
			if err := r.store.Close(); err != nil {
				return storeError(err)
			}
			return startError(command[0], syscall.Exec(r.path, command, env))
		}
		// Until here a signal may end this process: there is nothing to give back.
		signal.Notify(r.signals, child.Signals()...)
		_, _, err = r.hold()
		return err
	})
}

// withRunner checks all that can be checked before the lock is asked for, calls work, and closes
// the store.
func (a *app) withRunner(
	f *runFlags, name string, command []string, work func(*runner) error,
) (result error) {
	path, err := findCommand(command[0])
	if err != nil {
		return err
	}
	p := patience{f.nonblock, f.quiet, f.wait, time.Now().Add(f.wait)}
	events := holdfast.Events{Waiting: waitingHint}
	if f.quiet {
		events.Waiting = nil
	}
	s, err := persist(context.Background(), p, func(ctx context.Context) (*store, error) { return a.open(ctx, events) })
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 64)
	defer func() { closeStore(s, signals, result) }()
	f.ttl = cmp.Or(f.ttl, s.ttl)
	lock := f.lock(s, name, command)
	if err := checkLock(lock); err != nil {
		return err
	}
	grace, err := f.graceFor(s.Caps())
	if err != nil {
		return err
	}
	return work(&runner{store: s, lock: lock, flags: f, signals: signals,
		name: name, path: path, command: command, grace: grace, patience: p})
}

// checkLock returns what is wrong with the lock's options (P10). An acquire whose context has ended
// checks them and does no I/O.
func checkLock(lock *holdfast.Lock) error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := lock.TryAcquire(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return usagef("%w", err)
	}
	return nil
}

// hold takes the lock, runs the command and gives the lock back. It reports whether the command has run, and
// whether that was the last time, because a signal asked for the end or the next would end in the same way.
// The error has the exit code.
func (r *runner) hold() (ran, last bool, err error) {
	lease, err := r.acquire()
	began := driver.HostClock.Now()
	if err != nil {
		code := codeOf(err)
		return false, code > exitSignal || code == exitUsage, err
	}
	if lease.Degraded() {
		complain(fmt.Errorf("lock %q is held in the second store: it excludes only those who use that too", r.name))
	}
	h := r.flags.wanted(r.store, r.name)
	h.Token, h.Sequencer = lease.Token(), lease.Sequencer()
	env := environment(r.name, h, append(inherited(), h))
	c, err := child.Start(child.Options{
		Path: r.path, Args: r.command, Env: env, Until: trustedUntil(lease),
	})
	if err != nil {
		lease.ReleaseNow() // nothing has run, so the next try need not wait for --min-hold
		return false, true, startError(r.command[0], err)
	}
	watching, stop := context.WithCancel(context.Background())
	defer stop()
	s := &supervisor{
		child: c, lease: lease, signals: r.signals, name: r.name, grace: r.grace, gone: r.watchHold(watching, lease),
		maxHold: r.flags.maxHold, began: began,
	}
	err = s.supervise()
	// On a terminal the command has the foreground, so Ctrl-C reaches only the command.
	interrupted := codeOf(err) == exitSignal+int(syscall.SIGINT) || codeOf(err) == exitSignal+int(syscall.SIGQUIT)
	return true, s.asked || interrupted, err
}

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

// supervisor looks after a command while its lock is held. Four things can happen: the command
// ends or is stopped, a signal comes, the lock is lost, and it is time to check the trust deadline.
type supervisor struct {
	child   *child.Child
	lease   *holdfast.Lease
	signals chan os.Signal
	gone    <-chan struct{} // closed when the store has the hold no more
	name    string
	grace   time.Duration
	maxHold time.Duration  // 0: none
	began   driver.Instant // when the hold did
	asked   bool           // a signal has asked for the end
	ending  string         // why the lock is not renewed any more, and the command has got SIGTERM; "": it is renewed
	killAt  driver.Instant // if ending: when the command is killed
}

// killWithin is how long to wait for killed processes to be gone. They are gone at once, unless
// they hang in the kernel or the machine is very busy.
const killWithin = 5 * time.Second

// supervise returns the command's exit code, or what became of the lock.
func (s *supervisor) supervise() error {
	if !signal.Ignored(syscall.SIGTSTP) {
		signal.Notify(s.signals, syscall.SIGTSTP)
	}
	deadline := time.NewTimer(0)
	defer deadline.Stop()
	for {
		select {
		case e := <-s.child.Events():
			if e.Stopped == 0 {
				return s.ended(e.Code)
			}
			s.child.GoOn(e.Stopped)
		case sig := <-s.signals:
			if sig == syscall.SIGTSTP {
				// Ctrl-Z in a pipeline, of which others have stopped: this process must renew the lock.
				syscall.Kill(0, syscall.SIGCONT)
				continue
			}
			s.asked = s.asked || asksForEnd(sig)
			s.child.Signal(sig.(syscall.Signal))
		case <-s.lease.Done():
			return s.lost(killed)
		case <-s.gone:
			return s.lost(killed)
		case <-deadline.C:
			next := s.checkDeadline()
			if next <= 0 {
				return s.lost(killed)
			}
			deadline.Reset(next)
		}
	}
}

// checkDeadline tells the guard the trust deadline. If it is no further away than the grace, the
// lock could not be renewed, and the command is told to end. It returns when to check again, or 0
// if the deadline has passed.
func (s *supervisor) checkDeadline() time.Duration {
	now := driver.HostClock.Now()
	if s.ending != "" {
		return s.killAt.Sub(now)
	}
	until := trustedUntil(s.lease)
	s.child.Trust(until)
	left := until.Sub(now)
	switch {
	case left <= 0:
		return 0
	case left > s.grace:
		// Often enough for the guard to learn of every renewal in time, and then exactly when the
		// grace begins.
		return min(left-s.grace, max(left/4, 10*time.Millisecond))
	}
	s.killAt, s.ending = until, "could not be renewed"
	if s.maxHold > 0 && now >= s.began.Add(s.maxHold) {
		s.ending = fmt.Sprintf("has been held for --max-hold %v, and is not renewed any more", s.maxHold)
	}
	s.child.Signal(syscall.SIGTERM)
	s.child.Signal(syscall.SIGCONT) // a stopped command handles SIGTERM only when it is continued
	// In the background: if nobody reads the standard error, that must not delay SIGKILL.
	go complain(fmt.Errorf("lock %q %s: the command is told to end, and killed in %v", s.name, s.ending, left.Round(time.Millisecond)))
	return left
}

// ended gives the lock back after the command has ended.
func (s *supervisor) ended(code int) error {
	if s.ending != "" || s.lease.Err() != nil {
		return s.lost(code)
	}
	s.child.Close()
	err := s.lease.Release()
	switch {
	case errors.Is(err, holdfast.ErrLost):
		complain(fmt.Errorf("%w; the command ended with exit code %d, and may have run without the lock",
			lostText(s.name, err), code))
		return &exitError{exitLost, nil}
	case err != nil:
		complain(fmt.Errorf("the command has ended and lock %q is given back, but the store has not "+
			"confirmed it: it may stay closed until its TTL is over", s.name))
	}
	return &exitError{code, nil}
}

// killed is the exit code of a command that this process, or the guard, has killed.
const killed = exitSignal + int(syscall.SIGKILL)

// lost kills the command and all that it has started. The command may have ended by itself, with
// the exit code, but not what it has started.
func (s *supervisor) lost(code int) error {
	left := s.child.Kill(killWithin)
	s.child.RestoreTerminal()
	s.child.Close()
	err := s.lease.Err()
	if err == nil {
		why := cmp.Or(s.ending, "was not renewed in time")
		select {
		case <-s.gone:
			why = "is no longer in the store"
		default:
		}
		err = errors.New("it " + why)
	}
	fate := "was killed"
	if code != killed {
		fate = fmt.Sprintf("ended with exit code %d", code)
	}
	err = fmt.Errorf("%w; the command %s", lostText(s.name, err), fate)
	if left > 0 {
		err = fmt.Errorf("%w, but %d of its processes are still there", err, left)
	}
	complain(err)
	s.lease.Release() // removes what may still be in the store
	return &exitError{exitLost, nil}
}

// closeAfterLoss is how long the store has to confirm the end of a hold that was lost. If it does
// not, the hold ends by itself.
const closeAfterLoss = 500 * time.Millisecond

// closeStore closes the store, which may take some seconds if it does not answer. A signal ends the
// wait. After a loss the wait is short, and its failure is no news.
func closeStore(s *store, signals <-chan os.Signal, result error) {
	done := make(chan error, 1)
	go func() { done <- s.Close() }()
	var timeout <-chan time.Time
	if codeOf(result) == exitLost {
		timeout = time.After(closeAfterLoss)
	}
	for {
		select {
		case err := <-done:
			if err != nil && timeout == nil {
				complain(err)
			}
			return
		case <-timeout:
			return
		case sig := <-signals:
			if asksForEnd(sig) {
				return
			}
		}
	}
}

// waitingHint tells a user at a terminal why nothing happens.
func waitingHint(e holdfast.Event) {
	if term.IsTerminal(int(os.Stderr.Fd())) {
		tell(fmt.Sprintf("holdfast: waiting: %s\n", oneLine(heldText(e.Err))))
	}
}

// trustedUntil is the lease's trust deadline as an instant. The instant is read first: a pause
// between the two readings then makes the result earlier, never later.
func trustedUntil(lease *holdfast.Lease) driver.Instant {
	now := driver.HostClock.Now()
	return now.Add(time.Until(lease.ValidUntil()))
}
