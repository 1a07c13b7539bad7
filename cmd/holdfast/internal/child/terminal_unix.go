//go:build unix

package child

import (
	"os/signal"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// terminal is the controlling terminal. One process group at a time has its foreground: that group may read, and gets
// Ctrl-C. At first that is this process's, which passes signals on. The kernel stops a command that wants to use the
// terminal, and then it gets the foreground: see GoOn. Nil: there is no terminal.
type terminal struct {
	fd    int
	state *term.State // its settings before the command ran
	lent  bool        // the command's group has the foreground
}

func openTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	t := &terminal{fd: fd}
	t.state, _ = term.GetState(fd)
	return t
}

// ours reports whether this process's group has the foreground.
func (t *terminal) ours() bool {
	if t == nil {
		return false
	}
	pgrp, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && pgrp == unix.Getpgrp()
}

// lend gives the foreground to a group.
func (t *terminal) lend(group int) {
	if unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group) == nil {
		t.lent = true
	}
}

// ignoreStops lets this process write to the terminal from the background, and take the foreground
// back: it would be stopped by SIGTTOU otherwise. It is called when the command has been started,
// because the command must not inherit the ignored signal.
func (t *terminal) ignoreStops() { signal.Ignore(unix.SIGTTOU) }

// takeBack takes the foreground back.
func (t *terminal) takeBack() {
	if t == nil || !t.lent {
		return
	}
	t.lent = false
	signal.Ignore(unix.SIGTTOU)
	unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, unix.Getpgrp())
}

// close takes the foreground back, and does not use the terminal any more.
func (t *terminal) close() {
	if t != nil {
		t.takeBack()
		unix.Close(t.fd)
	}
}

// restore restores the settings that the terminal had before the command.
func (t *terminal) restore() {
	if t.ours() && t.state != nil {
		term.Restore(t.fd, t.state)
	}
}
