//go:build unix

package child

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Child is a running command. Its methods are for one goroutine.
type Child struct {
	pid, guard int // the guard's process id is the group's, too
	ended      atomic.Bool
	guardEnded atomic.Bool
	events     chan Event
	tty        *terminal
	trust      *os.File     // tells the guard the trust deadline
	before     map[int]bool // children that this process had before: not the command's
}

// Start starts the command. It gets this process's standard files and
// descriptors, and the terminal if this process has it (see terminal).
func Start(o Options) (*Child, error) {
	c := &Child{events: make(chan Event, 16), before: map[int]bool{}}
	started := make(chan error)
	go func() {
		// The kernel sends PR_SET_PDEATHSIG when the thread that started the
		// process ends, so this one must not: it reaps as long as we live.
		runtime.LockOSThread()
		err := c.start(o)
		started <- err
		if err == nil {
			c.reap()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Child) start(o Options) error {
	adoptOrphans()
	for _, pid := range children(os.Getpid()) {
		c.before[pid] = true
	}
	if err := c.startGuard(); err != nil {
		return fmt.Errorf("cannot start the guard process: %v", err) // %v: its errno is not the command's
	}
	c.Trust(o.Until)
	c.tty = openTerminal()
	if c.tty.eager() {
		c.tty.lend(c.guard)
	}
	pid, err := syscall.ForkExec(o.Path, o.Args, &syscall.ProcAttr{
		Env: o.Env, Files: []uintptr{0, 1, 2}, Sys: joinGroup(c.guard),
	})
	if err != nil {
		c.ended.Store(true)
		c.Close()
		return err
	}
	c.pid = pid
	c.tty.stayOut()
	return nil
}

// startGuard starts the guard and waits until it is deaf to signals: from then
// on it may be in the terminal's foreground.
func (c *Child) startGuard() error {
	deadlines, trust, err := os.Pipe()
	if err != nil {
		return err
	}
	defer deadlines.Close()
	ready, said, err := os.Pipe()
	if err != nil {
		trust.Close()
		return err
	}
	defer ready.Close()
	args := []string{guardName, strconv.Itoa(os.Getpid())}
	for pid := range c.before {
		args = append(args, strconv.Itoa(pid))
	}
	c.guard, err = syscall.ForkExec(self(), args, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{deadlines.Fd(), said.Fd(), 2}, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	said.Close()
	if err != nil {
		trust.Close()
		return err
	}
	c.trust = trust
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		trust.Close()
		var status syscall.WaitStatus
		syscall.Kill(c.guard, syscall.SIGKILL)
		syscall.Wait4(c.guard, &status, 0, nil)
		return errors.New("it ended at once")
	}
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

// reap takes note of what becomes of the command and the guard, and of the
// orphans that we have adopted.
func (c *Child) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return // no children any more
		case pid == c.pid && status.Stopped():
			c.events <- Event{Stopped: status.StopSignal()}
		case pid == c.pid && status.Signaled():
			c.ended.Store(true)
			c.events <- Event{Code: 128 + int(status.Signal())}
		case pid == c.pid && status.Exited():
			c.ended.Store(true)
			c.events <- Event{Code: status.ExitStatus()}
		case pid == c.guard && !status.Stopped():
			c.guardEnded.Store(true)
		}
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
	// A guard that does not read is stopped, and the whole group with it. We must
	// not wait for it.
	c.trust.SetWriteDeadline(time.Now().Add(time.Millisecond))
	fmt.Fprintln(c.trust, int64(until))
}

// Kill kills the command's group and, on Linux, all that descends from the
// command and has left the group, and waits until they are gone, but no longer
// than within. It returns how many are left.
func (c *Child) Kill(within time.Duration) int {
	end := time.Now().Add(within)
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		c.Signal(syscall.SIGKILL)
		left := killDescendants(os.Getpid(), c.before)
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
