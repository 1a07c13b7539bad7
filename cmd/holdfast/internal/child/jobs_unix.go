//go:build unix

package child

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// Signals returns the signals that a supervisor passes on to the command, but
// for those that this process was started to ignore: nohup, for example, means
// the command.
func Signals() []os.Signal {
	all := []os.Signal{
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT,
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
	c.Resume()
	return true
}

// Lent reports whether the command has the terminal.
func (c *Child) Lent() bool { return c.tty != nil && c.tty.lent }

// StopJob stops this process and the rest of its group, as the terminal would
// have done if the command were one of them, so that the shell gets control. It
// may return before the stop takes effect; SIGCONT tells the end of it.
func (c *Child) StopJob() {
	if c.tty != nil {
		c.tty.lent = false // whoever continues us says anew who has it
	}
	// Not SIGTSTP: once caught, Go never gives it its default action back.
	syscall.Kill(0, syscall.SIGSTOP)
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
// it.
func (c *Child) Resume() {
	if c.tty.ours() {
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
