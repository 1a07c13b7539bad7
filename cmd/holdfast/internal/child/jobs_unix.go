//go:build unix

package child

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// Signals returns the signals that a supervisor passes on to the command, but
// for SIGTSTP, and for those that this process was started to ignore: nohup, for
// example, means the command.
//
// SIGTSTP is passed on only once the command runs: a process that has caught it
// does not get its default action back from Go, which is right while it waits.
func Signals() []os.Signal {
	all := []os.Signal{
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT,
	}
	var heeded []os.Signal
	for _, s := range all {
		if !signal.Ignored(s) {
			heeded = append(heeded, s)
		}
	}
	return heeded
}

// LendIfNeeded gives the terminal to a command that was stopped because it
// needs it, if this process's group has it to give, and continues the command.
// Otherwise it returns false.
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

// StopJob stops this process and the rest of its group, as the terminal would
// have done if the command were one of them, so that the shell gets control. It
// may return before the stop takes effect; SIGCONT tells the end of it. From
// then on SIGTSTP is ignored, until it is asked for again.
func (c *Child) StopJob() {
	if c.tty != nil {
		// Whoever continues us says anew who has it.
		c.tty.again, c.tty.lent = c.tty.lent, false
	}
	// The others in the group get what the terminal sends: not SIGSTOP, because
	// one of them may be the guard of a run around this one, which must go on.
	signal.Ignore(syscall.SIGTSTP)
	syscall.Kill(0, syscall.SIGTSTP)
	syscall.Kill(os.Getpid(), syscall.SIGSTOP)
}

// Orphaned reports whether this process's group is orphaned in the sense of
// POSIX: none of its members has a parent in the same session but another group,
// a shell that could continue it after a stop. The members looked at are those
// above us.
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

// Resume continues the command, in the foreground if this process's group has
// it and the command had it or should have it: see eager.
func (c *Child) Resume() {
	if c.tty.eager() || c.tty.ours() && c.tty.again {
		c.tty.lend(c.guard)
	}
	c.Signal(syscall.SIGCONT)
}

// RestoreTerminal takes the terminal back and sets it as it was before the
// command, which was killed and could not do so itself.
func (c *Child) RestoreTerminal() {
	c.tty.takeBack()
	c.tty.restore()
}
