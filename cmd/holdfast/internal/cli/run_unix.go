//go:build unix

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"slices"
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
//  3. hold waits for the lock (acquire, in acquire_unix.go) and starts the command with its guard (child.Start).
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
}

// run is the command run.
func (a *app) run(f *runFlags, name string, command []string) error {
	return a.withRunner(f, name, command, func(r *runner) error {
		want, outer := f.wanted(r.store, name), inherited()
		bounded, stop := f.bounded(context.Background())
		ctx, cancel := context.WithTimeout(bounded, openWithin)
		joined, err := r.store.outerHold(ctx, want, outer)
		cancel()
		stop()
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

// withRunner checks all that can be checked before the lock is asked for, calls work, and closes the store.
func (a *app) withRunner(f *runFlags, name string, command []string, work func(*runner) error) (result error) {
	path, err := findCommand(command[0])
	if err != nil {
		return err
	}
	waiting := func(e holdfast.Event) { tellWaiting(heldText(e.Err)) }
	if f.quiet {
		waiting = nil
	}
	ctx, cancel := f.bounded(context.Background())
	defer cancel()
	s, err := persist(ctx, f, func(ctx context.Context) (*store, error) { return a.openBy(ctx, f.open, waiting) })
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 64)
	defer func() { closeStore(s, signals, result) }()
	caps := s.Caps()
	usual := max(holdfast.DefaultTTL, caps.MinTTL)
	f.ttl = cmp.Or(f.ttl, s.ttl, min(usual, cmp.Or(caps.MaxTTL, usual))) // as holdfast.Options say
	lock := f.lock(s, name, command)
	if err := checkLock(lock); err != nil {
		return err
	}
	grace, err := f.graceToUse()
	if err != nil {
		return err
	}
	return work(&runner{store: s, lock: lock, flags: f, signals: signals,
		name: name, path: path, command: command, grace: grace})
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
	c, err := child.Start(child.Options{Path: r.path, Args: r.command, Env: env, Until: trustedUntil(lease)})
	if err != nil {
		lease.ReleaseNow() // nothing has run, so the next try need not wait for --min-hold
		return false, true, startError(r.command[0], err)
	}
	watching, stop := context.WithCancel(context.Background())
	defer stop()
	s := &supervisor{runner: r, child: c, lease: lease, gone: r.watchHold(watching, lease), began: began}
	err = s.supervise()
	// On a terminal the command has the foreground, so Ctrl-C reaches only the command.
	interrupted := codeOf(err) == exitSignal+int(syscall.SIGINT) || codeOf(err) == exitSignal+int(syscall.SIGQUIT)
	return true, s.asked || interrupted, err
}

// supervisor looks after a command while its lock is held. Four things can happen: the command
// ends or is stopped, a signal comes, the lock is lost, and it is time to check the trust deadline.
type supervisor struct {
	*runner
	child  *child.Child
	lease  *holdfast.Lease
	gone   <-chan struct{} // closed when the store has the hold no more
	began  driver.Instant  // when the hold did
	asked  bool            // a signal has asked for the end
	ending string          // why the lock is not renewed any more, and the command has got SIGTERM; "": it is renewed
	killAt driver.Instant  // if ending: when the command is killed
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
	s.killAt, s.ending = until, fmt.Sprintf("could not be renewed in %s (%v)", s.store.shown, s.store.doubt.Load())
	if limit := s.flags.maxHold; limit > 0 && now >= s.began.Add(limit) {
		s.ending = fmt.Sprintf("has been held for --max-hold %v, and is not renewed any more", limit)
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
	if left > 0 {
		fate += fmt.Sprintf(", but %d of its processes are still there", left)
	}
	complain(fmt.Errorf("%w; the command %s", lostText(s.name, err), fate))
	s.lease.Release() // removes what may still be in the store
	return &exitError{exitLost, nil}
}

// checkEvery is how often run asks whether its hold is still in a store that does not tell: a break
// is then known within a second. A command that ends sooner costs no question.
const checkEvery = 500 * time.Millisecond

// watchHold returns a channel that is closed when an operator has broken the lease's hold, or the store has
// lost it. A renewal would tell that too, but with the default TTL only after 10 s.
//
// A store that tells of breaks (driver.Notifier) is asked twice only: the first question is a renewal, by which the
// client of etcd begins to listen. Other stores are read again and again, by the holder only.
func (r *runner) watchHold(ctx context.Context, lease *holdfast.Lease) <-chan struct{} {
	gone := make(chan struct{})
	go func() {
		ticker := time.NewTicker(checkEvery)
		defer ticker.Stop()
		tells := r.store.tells
		for asked := 0; !tells || asked < 2; asked++ {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			if tells && asked == 0 {
				tells = r.renew(ctx, lease) == nil // else nobody may listen, as after the time of --max-hold
			} else if !r.stillHeld(ctx, lease) {
				close(gone)
				return
			}
		}
	}()
	return gone
}

// stillHeld asks the store whether it has the hold. If the store does not answer, the renewals notice that, and
// stillHeld returns true.
func (r *runner) stillHeld(ctx context.Context, lease *holdfast.Lease) bool {
	bounded, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	info, err := r.store.Inspect(bounded, r.name)
	if err != nil || slices.ContainsFunc(info.Holders, func(h driver.Holder) bool { return h.Token == lease.Token() }) {
		return true
	}
	// The renewal says why it is gone. After the time of --max-hold there is none.
	err = r.renew(ctx, lease)
	return !errors.Is(err, holdfast.ErrLost) && !errors.Is(err, holdfast.ErrMaxHold)
}

func (r *runner) renew(ctx context.Context, lease *holdfast.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	return lease.Renew(ctx)
}

// lostText says which lock was lost, and why.
func lostText(name string, err error) error {
	if lost, ok := errors.AsType[*holdfast.LostError](err); ok {
		return lost
	}
	return fmt.Errorf("lock %q lost: %w", name, err)
}

// closeAfterLoss is how long the store has to confirm the end of a hold that was lost, or of a request to which
// it has not answered in time. If it does not, the hold ends by itself.
const closeAfterLoss = 500 * time.Millisecond

// closeStore closes the store, which may take some seconds if it does not answer. A signal ends the
// wait. After a loss, or if the store did not answer, the wait is short, and its failure is no news.
func closeStore(s *store, signals <-chan os.Signal, result error) {
	done, lost := make(chan error, 2), codeOf(result) == exitLost || codeOf(result) == exitUnavailable
	go func() { done <- s.Close() }()
	if lost {
		time.AfterFunc(closeAfterLoss, func() { done <- nil })
	}
	if err, _ := awaitUnlessAsked(done, signals); err != nil && !lost {
		complain(err)
	}
}

// tellWaiting tells a user at a terminal why nothing happens.
func tellWaiting(why error) {
	if term.IsTerminal(int(os.Stderr.Fd())) {
		complain(fmt.Errorf("waiting: %w", why))
	}
}

// trustedUntil is the lease's trust deadline as an instant. The instant is read first: a pause between the two
// readings then makes the result earlier, never later.
func trustedUntil(lease *holdfast.Lease) driver.Instant {
	now := driver.HostClock.Now()
	return now.Add(time.Until(lease.ValidUntil()))
}

// findCommand returns the path of the command's file, before a lock is taken.
func findCommand(program string) (string, error) {
	path, err := exec.LookPath(program)
	switch {
	case err == nil || errors.Is(err, exec.ErrDot):
		return path, nil
	case errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist):
		return "", &exitError{exitNotFound, fmt.Errorf("command %q was not found", program)}
	}
	return "", cannotRun(program, errors.Unwrap(err).Error())
}

// startError gives the error of starting a command its exit code.
func startError(program string, err error) error {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return &exitError{exitInternal, err}
	}
	switch errno {
	case syscall.ENOENT: // findCommand has found it
		return cannotRun(program, "the interpreter in its first line was not found")
	case syscall.EAGAIN, syscall.ENOMEM:
		return &exitError{exitInternal, fmt.Errorf("command %q cannot be started: %w", program, err)}
	}
	return cannotRun(program, errno.Error())
}

func cannotRun(program, why string) error {
	return &exitError{exitCannotRun, fmt.Errorf("command %q cannot be executed: %s", program, why)}
}
