//go:build unix

package child

import (
	"os"
	"os/signal"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// Signals returns the signals that a supervisor passes on to the command. Signals that this process
// was started to ignore are not among them: the command ignores them too, for example after nohup.
//
// SIGTSTP is not among them either, because it must be caught only when the command runs. Before
// that its default action, to stop this process, is right; and once a Go program has caught the
// signal it cannot restore the default action.
func Signals() []os.Signal {
	all := []os.Signal{
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT,
	}
	return slices.DeleteFunc(all, signal.Ignored)
}

// LendIfNeeded gives the terminal to a command that was stopped because it needs it, and continues
// the command. It returns false if the command was stopped for another reason, or if this process's
// group does not have the terminal.
func (c *Child) LendIfNeeded(stopped syscall.Signal) bool {
	if stopped != syscall.SIGTTIN && stopped != syscall.SIGTTOU || !c.tty.ours() {
		return false
	}
	c.tty.lend(c.guard)
	c.Signal(syscall.SIGCONT)
	return true
}

// Lent reports whether the command has the terminal.
func (c *Child) Lent() bool { return c.tty != nil && c.tty.lent }

// StopJob stops this process and the rest of its group after the command was stopped, so that the shell
// gets control. The terminal would have done so if the command were in this group. StopJob may return
// before the stop takes effect; SIGCONT tells that the stop is over. SIGTSTP is ignored until
// Event.JobStopped; then the caller asks for it again by signal.Notify.
//
// The guard stops the job, this process before the others. Suppose this process did it itself, and its
// group is the command of a run around this one. When another of the group stops, the outer run tells
// its shell that the job has stopped, and the user may continue the job before this process has stopped
// itself. Its stop would come after the SIGCONT, and last for ever.
func (c *Child) StopJob(e Event) {
	if c.tty != nil {
		// The shell that continues the job decides whether it has the terminal.
		c.tty.again, c.tty.lent = c.tty.lent, false
	}
	// The rest of the group gets SIGTSTP, as from the terminal, and not SIGSTOP: one of them may be
	// the guard of a run around this one, which catches SIGTSTP and must go on.
	signal.Ignore(syscall.SIGTSTP)
	if !e.Guard {
		c.order(stopOrder)
		return
	}
	syscall.Kill(0, syscall.SIGTSTP)
	syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	c.events <- Event{JobStopped: true}
}

// Orphaned reports whether this process's group is orphaned in the sense of POSIX: no member has a
// parent that is in the same session and in another group, such as a shell, which could continue
// the group after a stop. It checks this process and its ancestors in the group.
func Orphaned() bool {
	session, err := unix.Getsid(0)
	for pid := os.Getppid(); err == nil && pid > 0; pid = parent(pid) {
		if s, err := unix.Getsid(pid); err != nil || s != session {
			return true
		}
		if group, err := syscall.Getpgid(pid); err == nil && group != syscall.Getpgrp() {
			return false
		}
	}
	return true
}

// Resume continues the command. If this process's group has the foreground, the command gets it if
// it had it before the stop, or should have it anyway: see wantsForeground.
func (c *Child) Resume() {
	if c.tty.wantsForeground() || c.tty.ours() && c.tty.again {
		c.tty.lend(c.guard)
	}
	c.Signal(syscall.SIGCONT)
}

// RestoreTerminal takes the terminal back and restores its settings, because a command that was
// killed could not.
func (c *Child) RestoreTerminal() {
	c.tty.takeBack()
	c.tty.restore()
}
