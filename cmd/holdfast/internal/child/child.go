//go:build unix

// Package child runs one command so that the command, and everything that it starts, can be killed
// in time.
//
// Three processes take part. The supervisor is the process that calls [Start]: it holds the lock.
// The guard is a second process of the same program. The command is the guard's child, in a process
// group of its own, which the guard leads. The guard kills the command and all its descendants when
//
//   - the supervisor has died, whatever killed it;
//   - on Linux, the last trust deadline that the supervisor has told it has passed: the supervisor
//     stands still, or it would have told a later one.
//
// The next holder of the lock may begin at that moment. The command runs beside it for no longer than it
// takes the guard to kill it.
//
// On Linux the guard adopts orphans of the command (PR_SET_CHILD_SUBREAPER), so it also finds
// processes that have left the group and the session. If the guard is killed, the kernel kills the
// command (PR_SET_PDEATHSIG), and the supervisor adopts and kills the rest.
//
// `holdfast run --help` says what survives. On other systems than Linux that is also the whole group, if the
// supervisor and the guard are both killed.
//
// The supervisor's side is child.go, the guard's side guard_unix.go. The supervisor tells the guard
// trust deadlines, the guard reports back.
//
// Ctrl-Z does not stop the command: a job that stands still could not renew its lock.
package child

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfastlock/holdfast/driver"
)

// Options say what to run.
type Options struct {
	Path string   // the program's file
	Args []string // its arguments, the name of the program first
	Env  []string // its environment, as in os.Environ

	Until driver.Instant // the present trust deadline: see Child.Trust
}

// Event tells that the command was stopped, or that it has ended.
type Event struct {
	Stopped syscall.Signal // the signal that has stopped the command, or 0
	Code    int            // otherwise: the command's exit code, or 128+n if signal n killed it
}

// guardName is the guard's name in the list of processes, for ps, top and killall as well as in its
// arguments. A process whose arguments begin with it is a guard.
const guardName = "holdfast-guard"

// killed is the exit code of a command that was killed.
const killed = 128 + int(syscall.SIGKILL)

// Child is a running command. Its methods are for one goroutine.
type Child struct {
	pid         atomic.Int64 // 0: not started yet
	guard       int          // the guard's process id, which is the group's too
	ended       atomic.Bool
	guardEnded  atomic.Bool
	events      chan Event
	tty         *terminal
	trust       *os.File      // for telling the guard the trust deadline
	reports     *os.File      // for reading what the guard reports
	reportsRead chan struct{} // closed when the guard's last report has been read
	before      map[int]bool  // children that this process had before: not the command's
}

// Start starts the command. The command gets this process's standard files and descriptors. The error is a
// syscall.Errno if the command's file cannot be executed.
func Start(o Options) (*Child, error) {
	c := &Child{
		events: make(chan Event, 16), reportsRead: make(chan struct{}), before: map[int]bool{},
	}
	adoptOrphans()
	for _, pid := range children() {
		c.before[pid] = true
	}
	if err := c.startGuard(o); err != nil {
		return nil, fmt.Errorf("cannot start the guard process: %v", err) // %v: not the command's errno
	}
	c.reap()
	reports := bufio.NewReader(c.reports)
	if err := c.startCommand(o, reports); err != nil {
		refused := errors.As(err, new(syscall.Errno))
		c.ended.Store(refused)
		close(c.reportsRead)
		if !refused {
			// The guard may have started the command, and died before it could report that.
			c.killUnguarded()
			c.ended.Store(true)
		}
		c.Close()
		return nil, err
	}
	go c.relayReports(reports)
	return c, nil
}

// startGuard starts the guard. It starts the command when it is told the first trust deadline.
func (c *Child) startGuard(o Options) (err error) {
	orders, trust, err := os.Pipe()
	if err != nil {
		return err
	}
	defer orders.Close()
	reports, guardReports, err := os.Pipe()
	if err != nil {
		return err // the garbage collector closes the other ends
	}
	defer guardReports.Close()
	// The guard inherits its ends of the pipes under the same numbers: any other number may be a
	// descriptor that the command should inherit.
	for _, f := range []*os.File{orders, guardReports} {
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFD, 0); err != nil {
			return err
		}
	}
	args := []string{
		guardName, strconv.Itoa(int(orders.Fd())), strconv.Itoa(int(guardReports.Fd())),
		strconv.Itoa(syscall.Getpgrp()), o.Path,
	}
	c.guard, err = syscall.ForkExec(self(), append(args, o.Args...), &syscall.ProcAttr{
		Env: o.Env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	c.trust, c.reports = trust, reports
	return err
}

// startCommand has the guard start the command.
func (c *Child) startCommand(o Options, reports io.Reader) error {
	if r, err := readReport(reports); err != nil || r.what != guardReady {
		return errors.New("cannot start the guard process: it ended at once")
	}
	c.tty = openTerminal()
	c.Trust(o.Until) // the first deadline starts the command
	switch r, err := readReport(reports); {
	case err != nil:
		return errors.New("the guard process ended before it could start the command")
	case r.what == commandRefused:
		return syscall.Errno(r.n)
	default:
		c.pid.Store(int64(r.n))
	}
	// This process may use the terminal from the background. It ignores SIGTTOU only now, because the command must
	// not inherit that.
	signal.Ignore(syscall.SIGTTOU)
	return nil
}

// self returns a path to this program's file that works even if the file has been replaced.
func self() string {
	const exe = "/proc/self/exe"
	if _, err := os.Stat(exe); err == nil {
		return exe
	}
	if path, err := os.Executable(); err == nil {
		return path
	}
	// Linux without /proc. A shell has found this program by PATH.
	path, _ := exec.LookPath(os.Args[0])
	return cmp.Or(path, os.Args[0])
}

// relayReports turns the guard's reports into events, until the guard has ended.
func (c *Child) relayReports(reports io.Reader) {
	defer close(c.reportsRead)
	for {
		switch r, err := readReport(reports); {
		case err != nil:
			return
		case r.what == commandStopped:
			c.events <- Event{Stopped: syscall.Signal(r.n)}
		case r.what == commandEnded:
			c.reportEnd(r.n)
		}
	}
}

// reportEnd sends the event of the command's end, once.
func (c *Child) reportEnd(code int) {
	if c.ended.CompareAndSwap(false, true) {
		c.events <- Event{Code: code}
	}
}

// killUnguarded kills the command, and all that it has started, if its guard has died before it.
// Without a guard the command could go on beside the next holder of the lock.
func (c *Child) killUnguarded() {
	<-c.reportsRead
	if c.ended.Load() {
		return
	}
	// No other group can have this number as long as the command is in the group.
	syscall.Kill(-c.guard, syscall.SIGKILL)
	for end := time.Now().Add(killTime); killDescendants(c.before) > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// Events returns the channel of events. The last event is the command's end.
func (c *Child) Events() <-chan Event { return c.events }

// Signal sends a signal to the command's group.
func (c *Child) Signal(s syscall.Signal) {
	// As long as either of them is there, no other group can have this number.
	if !c.ended.Load() || !c.guardEnded.Load() {
		syscall.Kill(-c.guard, s)
	}
}

// Trust tells the guard a new trust deadline. If the guard learns of no later one, it kills the
// command when this one has passed.
func (c *Child) Trust(until driver.Instant) {
	pipe, err := c.trust.SyscallConn()
	if err != nil {
		return // closed: the command has ended
	}
	// A guard that is stopped does not read. This process must not wait for it, so the write fails at
	// once if the pipe is full. A write deadline would be wrong: on a busy machine it passes before the
	// write has begun, and the guard waits for the first trust deadline for ever.
	order := binary.NativeEndian.AppendUint64(nil, uint64(until))
	pipe.Write(func(fd uintptr) bool {
		syscall.Write(int(fd), order)
		return true
	})
}

// Signals returns the signals that a supervisor passes on to the command. Signals that this process
// was started to ignore are not among them: the command ignores them too, for example after nohup.
func Signals() []os.Signal {
	all := []os.Signal{
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT,
	}
	return slices.DeleteFunc(all, signal.Ignored)
}

// goOnAfter is the pause before a stopped command goes on. It may stop again at once.
const goOnAfter = 100 * time.Millisecond

// GoOn continues a command that the terminal has stopped. If the command wanted to use the terminal, it gets the
// foreground as soon as this process's group has that. Whoever has sent SIGSTOP can continue the command himself:
// its lock is renewed meanwhile.
func (c *Child) GoOn(stopped syscall.Signal) {
	if stopped == syscall.SIGSTOP {
		return
	}
	if stopped != syscall.SIGTSTP && c.tty.ours() {
		c.tty.lend(c.guard)
	}
	time.AfterFunc(goOnAfter, func() { c.Signal(syscall.SIGCONT) })
}

// Kill kills the command's group and, on Linux, all descendants of the command that have left the
// group. It waits until they are gone, but no longer than within, and returns how many are left. Then it restores
// the terminal's settings, because a command that was killed could not.
func (c *Child) Kill(within time.Duration) int {
	defer c.tty.restore()
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

// Close ends the guard and takes the terminal back. Processes that the command has left running go
// on.
func (c *Child) Close() {
	if !c.guardEnded.Load() {
		syscall.Kill(c.guard, syscall.SIGKILL)
	}
	c.trust.Close()
	c.tty.close()
}

// reaper waits for this process's children: the guards, and the commands and orphans that the
// process adopts when a guard ends. There is one reaper, because the kernel reports the end of each
// child only once. An earlier command of `holdfast elect` may have left a daemon, which is a child beside the
// next guard.
var reaper struct {
	sync.Mutex
	running bool
	waiting []*Child // those whose guard, or adopted command, has not ended
}

// reap has the reaper wait for the guard.
func (c *Child) reap() {
	reaper.Lock()
	defer reaper.Unlock()
	reaper.waiting = append(reaper.waiting, c)
	if !reaper.running {
		reaper.running = true
		go reapAll()
	}
}

func reapAll() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		reaper.Lock()
		if err != nil && err != syscall.EINTR && len(reaper.waiting) == 0 {
			reaper.running = false
			reaper.Unlock()
			return // no children any more
		}
		waiting := slices.Clone(reaper.waiting)
		reaper.Unlock()
		if err != nil {
			continue
		}
		for _, c := range waiting {
			if c.noteEnd(pid, status) {
				reaper.Lock()
				reaper.waiting = slices.DeleteFunc(reaper.waiting, func(other *Child) bool { return other == c })
				reaper.Unlock()
			}
		}
	}
}

// noteEnd handles the end of a child process, which may be another command's. It returns true when both
// the guard and the command have ended.
func (c *Child) noteEnd(pid int, status syscall.WaitStatus) (done bool) {
	switch {
	case pid == c.guard:
		c.guardEnded.Store(true)
		c.killUnguarded()
		if isChild(int(c.pid.Load())) {
			return c.ended.Load()
		}
		c.reportEnd(killed) // does nothing if the guard has reported the end
		return true
	case pid == int(c.pid.Load()):
		c.killUnguarded()
		c.reportEnd(exitCode(status))
		return c.guardEnded.Load()
	}
	return false
}
