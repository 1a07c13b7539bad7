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

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/cmd/holdfast/internal/child"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/lease"
)

// supervisor looks after a command while its lock is held. It waits for four
// things: the command, signals, the loss of the lock, and the time at which to
// look at the trust deadline again.
type supervisor struct {
	child   *child.Child
	lease   *holdfast.Lease
	signals chan os.Signal
	name    string
	grace   time.Duration
	maxHold time.Duration  // 0: none
	expires driver.Instant // when that is over

	asked  bool             // a signal has asked for the end
	stops  bool             // SIGTSTP is heeded
	doomed bool             // the command was told to end, as the lock is not renewed
	why    string           // doomed: what has become of the lock
	told   chan struct{}    // doomed: closed when that has been written
	kill   driver.Instant   // doomed: when it is killed
	wake   <-chan time.Time // when a job is continued that nobody else continues
}

// killWithin bounds how long we wait for killed processes to be gone. They are
// at once, unless they hang in the kernel or the machine is very busy.
const killWithin = 5 * time.Second

// leaseMargin is the time between the trust deadline and the end of the TTL.
func leaseMargin(ttl time.Duration) time.Duration { return lease.Margin(0, ttl) }

// run returns the command's exit code, or what became of the lock.
func (s *supervisor) run() error {
	s.stops = !signal.Ignored(syscall.SIGTSTP)
	s.heedStops()
	look := time.NewTimer(0)
	defer look.Stop()
	for {
		select {
		case e := <-s.child.Events():
			if e.Stopped != 0 {
				s.stopped(e.Stopped)
				continue
			}
			return s.ended(e.Code)
		case sig := <-s.signals:
			if sig == syscall.SIGCONT {
				if !s.resume() {
					return s.lost(killed)
				}
				continue
			}
			s.asked = s.asked || ends(sig)
			s.child.Signal(sig.(syscall.Signal))
		case <-s.wake:
			if !s.resume() {
				return s.lost(killed)
			}
		case <-s.lease.Done():
			return s.lost(killed)
		case <-look.C:
			next := s.look()
			if next <= 0 {
				return s.lost(killed)
			}
			look.Reset(next)
		}
	}
}

// heedStops has SIGTSTP passed on, unless this process was started to ignore it.
func (s *supervisor) heedStops() {
	if s.stops {
		signal.Notify(s.signals, syscall.SIGTSTP)
	}
}

// look tells the guard the trust deadline, and the command that it must end if
// that has come near. It returns when to look again, or 0 if the time is over.
func (s *supervisor) look() time.Duration {
	now := driver.HostClock.Now()
	if s.doomed {
		return s.kill.Sub(now)
	}
	until := trustedUntil(s.lease)
	s.child.Trust(until)
	left := until.Sub(now)
	if left > s.grace {
		// Often enough for the guard to learn of every renewal in time, and then
		// at the moment when the grace begins.
		return min(left-s.grace, max(left/4, 10*time.Millisecond))
	}
	if left <= 0 {
		return 0
	}
	s.doomed, s.kill, s.why = true, until, "could not be renewed"
	if s.maxHold > 0 && now >= s.expires {
		s.why = fmt.Sprintf("has been held for --max-hold %v, and is not renewed any more", s.maxHold)
	}
	s.child.Signal(syscall.SIGTERM)
	s.child.Signal(syscall.SIGCONT) // one that is stopped must hear it too
	// Whoever does not read this must not delay what comes next.
	s.told = make(chan struct{})
	go func() {
		defer close(s.told)
		complain(fmt.Errorf("lock %q %s: the command is told to end, and killed in %v", s.name, s.why, left.Round(time.Millisecond)))
	}()
	return left
}

// stopped deals with a command that a signal has stopped.
func (s *supervisor) stopped(by syscall.Signal) {
	if s.child.LendIfNeeded(by) {
		return
	}
	if by == syscall.SIGSTOP && !s.child.Lent() {
		// Somebody has stopped the command itself. It still runs, and the lock is
		// renewed for it.
		return
	}
	if child.Orphaned() {
		// Nobody could continue the job, so it must not stop. After a pause, as it
		// may try again at once. SIGSTOP has a sender, who can send SIGCONT too.
		if by != syscall.SIGSTOP {
			s.wake = time.After(100 * time.Millisecond)
		}
		return
	}
	// Ctrl-Z and the like: this process stops too, so that the shell gets control.
	// It cannot renew then, and the guard sees to it that the command does not
	// wake up beside the next holder.
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if s.lease.Renew(ctx) == nil {
		s.child.Trust(trustedUntil(s.lease))
	}
	left := time.Until(s.lease.ValidUntil()).Round(time.Second / 10)
	complain(fmt.Errorf("stopped: the command is killed if it is not continued within %v, when lock %q runs out", left, s.name))
	s.child.StopJob()
}

// resume continues the command, unless its lock has run out meanwhile: then it
// returns false.
func (s *supervisor) resume() bool {
	s.wake = nil
	s.heedStops()
	if s.lease.Err() != nil {
		return false
	}
	s.child.Resume()
	return true
}

// ended gives the lock back after the command has ended.
func (s *supervisor) ended(code int) error {
	if s.doomed || s.lease.Err() != nil {
		return s.lost(code)
	}
	s.child.Close()
	err := s.lease.Release()
	switch {
	case errors.Is(err, holdfast.ErrLost):
		complain(fmt.Errorf("%w; the command ended with exit code %d, and may have run without the lock", lostText(s.name, err), code))
		return &exitError{exitLost, nil}
	case err != nil:
		complain(fmt.Errorf("the command has ended and lock %q is given back, but the store has not confirmed it: it may stay closed until its TTL is over", s.name))
	}
	return &exitError{code, nil}
}

// killed is the exit code of a command that we, or the guard, have killed.
const killed = exitSignal + int(syscall.SIGKILL)

// lost kills the command, and all that it has started: also when it has ended
// itself, with this exit code, but what it has started may not.
func (s *supervisor) lost(code int) error {
	left := s.child.Kill(killWithin)
	s.child.RestoreTerminal()
	s.child.Close()
	if s.doomed {
		select {
		case <-s.told: // what was said first stands first
		case <-time.After(100 * time.Millisecond):
		}
	}
	err := s.lease.Err()
	if err == nil {
		err = errors.New("it " + cmp.Or(s.why, "was not renewed in time"))
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
	s.lease.Release() // what still stands in the store is withdrawn
	return &exitError{exitLost, nil}
}

// lostText says which lock was lost, and why.
func lostText(name string, err error) error {
	var lost *holdfast.LostError
	if errors.As(err, &lost) {
		return lost
	}
	return fmt.Errorf("lock %q lost: %w", name, err)
}
