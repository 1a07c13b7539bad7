//go:build unix

package child

import (
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

// takeBack takes the foreground back.
func (t *terminal) takeBack() {
	if t != nil && t.lent {
		t.lent = false
		unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, unix.Getpgrp())
	}
}

// close takes the foreground back, and does not use the terminal any more.
func (t *terminal) close() {
	if t != nil {
		t.takeBack()
		unix.Close(t.fd)
	}
}

// restore takes the foreground back, and restores the settings that the terminal had before the command.
func (t *terminal) restore() {
	t.takeBack()
	if t.ours() && t.state != nil {
		term.Restore(t.fd, t.state)
	}
}
