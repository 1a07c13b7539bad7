//go:build unix

package child

import (
	"os/signal"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// terminal is the controlling terminal, of which one process group at a time
// has the foreground: it may read, and gets Ctrl-C and Ctrl-Z. Nil: there is
// none.
type terminal struct {
	fd    int
	state *term.State // how it was set before the command ran
	lent  bool        // the command's group has the foreground
	again bool        // it had, when the job was stopped
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

// eager reports whether the command should have the foreground from the start.
// Not in a pipeline: with `holdfast run … | less` the foreground group is less's
// too, which would be stopped at its first look at the keyboard. There the
// command gets it when it needs it: see lendIfNeeded.
func (t *terminal) eager() bool {
	return t.ours() && term.IsTerminal(0) && !isPipe(1)
}

func isPipe(fd int) bool {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return false
	}
	mode := st.Mode & unix.S_IFMT
	return mode == unix.S_IFIFO || mode == unix.S_IFSOCK
}

// lend gives the foreground to a group.
func (t *terminal) lend(group int) {
	if unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group) == nil {
		t.lent = true
	}
}

// stayOut lets this process write to the terminal and take it back from the
// background, for which it would be stopped otherwise. It is called after the
// command was started, which must not inherit it.
func (t *terminal) stayOut() { signal.Ignore(unix.SIGTTOU) }

// takeBack takes the foreground back.
func (t *terminal) takeBack() {
	if t == nil || !t.lent {
		return
	}
	t.lent = false
	signal.Ignore(unix.SIGTTOU)
	unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, unix.Getpgrp())
}

// restore sets the terminal as it was before the command, which was killed and
// could not do so itself.
func (t *terminal) restore() {
	if t.ours() && t.state != nil {
		term.Restore(t.fd, t.state)
	}
}
