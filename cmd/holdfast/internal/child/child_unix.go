//go:build unix

package child

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfastlock/holdfast/driver"
)

// Child is a running command. Its methods are for one goroutine.
type Child struct {
	pid        atomic.Int64 // 0: not started yet
	guard      int          // its process id is the group's, too
	ended      atomic.Bool
	guardEnded atomic.Bool
	events     chan Event
	tty        *terminal
	trust      *os.File      // tells the guard the trust deadline
	reports    *os.File      // what the guard tells us
	heard      chan struct{} // closed when the guard's last report has been read
	before     map[int]bool  // children that this process had before: not the command's
}

// Start starts the command. It gets this process's standard files and
// descriptors, and the terminal if this process has it (see terminal). The error is
// a syscall.Errno if the command's file cannot be executed.
func Start(o Options) (*Child, error) {
	c := &Child{events: make(chan Event, 16), heard: make(chan struct{}), before: map[int]bool{}}
	adoptOrphans()
	for _, pid := range children() {
		c.before[pid] = true
	}
	if err := c.startGuard(o); err != nil {
		return nil, fmt.Errorf("cannot start the guard process: %v", err) // %v: its errno is not the command's
	}
	c.reap()
	reports := bufio.NewReader(c.reports)
	if err := c.startCommand(o, reports); err != nil {
		refused := errors.As(err, new(syscall.Errno))
		c.ended.Store(refused)
		close(c.heard)
		if !refused {
			// The guard may have started the command, and died before it could say so.
			c.unguarded()
			c.ended.Store(true)
		}
		c.Close()
		return nil, err
	}
	go c.listen(reports)
	return c, nil
}

// startGuard starts the guard, which starts the command when it is told to.
func (c *Child) startGuard(o Options) error {
	orders, trust, err := os.Pipe()
	if err != nil {
		return err
	}
	defer orders.Close()
	reports, said, err := os.Pipe()
	if err != nil {
		trust.Close()
		return err
	}
	defer said.Close()
	// The guard has its ends under the numbers that they have here, because any
	// other number may be a descriptor that the command is to inherit.
	for _, f := range []*os.File{orders, said} {
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFD, 0); err != nil {
			trust.Close()
			reports.Close()
			return err
		}
	}
	args := []string{guardName, strconv.Itoa(int(orders.Fd())), strconv.Itoa(int(said.Fd())), strconv.Itoa(syscall.Getpgrp()), o.Path}
	c.guard, err = syscall.ForkExec(self(), append(args, o.Args...), &syscall.ProcAttr{
		Env: o.Env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		trust.Close()
		reports.Close()
		return err
	}
	c.trust, c.reports = trust, reports
	return nil
}

// startCommand has the guard start the command, in the terminal's foreground if
// that is ours to give. Until the guard is deaf to signals it must not be there.
func (c *Child) startCommand(o Options, reports io.Reader) error {
	if r, err := readReport(reports); err != nil || r.what != guardReady {
		return errors.New("cannot start the guard process: it ended at once")
	}
	c.tty = openTerminal()
	if c.tty.eager() {
		c.tty.lend(c.guard)
	}
	c.Trust(o.Until) // the first one starts the command
	switch r, err := readReport(reports); {
	case err != nil:
		return errors.New("the guard process ended before it could start the command")
	case r.what == commandRefused:
		return syscall.Errno(r.n)
	default:
		c.pid.Store(int64(r.n))
	}
	c.tty.stayOut()
	return nil
}

// self is this program's file, also if it has been replaced since.
func self() string {
	const exe = "/proc/self/exe"
	if _, err := os.Stat(exe); err == nil {
		return exe
	}
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}

// listen takes note of what the guard reports of the command.
func (c *Child) listen(reports io.Reader) {
	defer close(c.heard)
	for {
		switch r, err := readReport(reports); {
		case err != nil:
			return
		case r.what == commandStopped:
			c.events <- Event{Stopped: syscall.Signal(r.n)}
		case r.what == commandEnded:
			c.end(r.n)
		}
	}
}

// end tells of the command's end, once.
func (c *Child) end(code int) {
	if c.ended.CompareAndSwap(false, true) {
		c.events <- Event{Code: code}
	}
}

// unguarded kills the command, and all that it has started, when its guard has
// died: without one it could run on beside the next holder.
func (c *Child) unguarded() {
	<-c.heard
	if c.ended.Load() {
		return
	}
	syscall.Kill(-c.guard, syscall.SIGKILL) // the command keeps the group's number in use
	for end := time.Now().Add(killFor); killDescendants(c.before) > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// Events returns the channel of what happens to the command. Its end is the last
// event.
func (c *Child) Events() <-chan Event { return c.events }

// Signal sends a signal to the command's group.
func (c *Child) Signal(s syscall.Signal) {
	// While either of them is there, the group's number cannot be another's.
	if !c.ended.Load() || !c.guardEnded.Load() {
		syscall.Kill(-c.guard, s)
	}
}

// Trust tells the guard until when the command may run without hearing from this
// process again.
func (c *Child) Trust(until driver.Instant) {
	pipe, err := c.trust.SyscallConn()
	if err != nil {
		return // closed: the command has ended
	}
	// A guard that does not read is stopped, and the whole group with it. We must
	// not wait for it: where the pipe is full the write fails at once. A deadline would not
	// do. What it passes before the write has begun is not written, and on a busy
	// machine that happened to the first one, for which the guard waited for ever.
	line := fmt.Appendln(nil, int64(until))
	pipe.Write(func(fd uintptr) bool {
		syscall.Write(int(fd), line)
		return true
	})
}

// Kill kills the command's group and, on Linux, all that descends from the
// command and has left the group, and waits until they are gone, but no longer
// than within. It returns how many are left.
func (c *Child) Kill(within time.Duration) int {
	end := time.Now().Add(within)
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		c.Signal(syscall.SIGKILL)
		left := killDescendants(c.before)
		if left == 0 && !c.ended.Load() {
			left = 1
		}
		if left == 0 || time.Now().After(end) {
			return left
		}
		time.Sleep(pause)
	}
}

// Close dismisses the guard and takes the terminal back. What the command has
// left running goes on.
func (c *Child) Close() {
	if !c.guardEnded.Load() {
		syscall.Kill(c.guard, syscall.SIGKILL)
	}
	c.trust.Close()
	c.tty.takeBack()
}
