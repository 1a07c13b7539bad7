//go:build unix

package child

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// init makes this process a guard if it was started as one, and does not return then. It is not called
// by main, because a guard needs none of the other packages: Go initializes the packages that are ready
// in the order of their paths, so those of this package run before those of most client libraries,
// which take longer than the guard's own start.
func init() {
	if len(os.Args) < 6 || os.Args[0] != guardName {
		return
	}
	g := guard{}
	if _, err := fmt.Sscan(strings.Join(os.Args[1:4], " "), &g.orders, &g.reports, &g.supervisorGroup); err != nil {
		os.Exit(1)
	}
	showName(guardName)
	syscall.CloseOnExec(g.orders)
	syscall.CloseOnExec(g.reports)
	g.run(os.Args[4], os.Args[5:])
	os.Exit(0)
}

// guard starts the command and waits for a reason to kill it.
type guard struct {
	orders          int // the descriptor from which trust deadlines are read
	reports         int // the descriptor to which reports are written
	supervisorGroup int // the supervisor's process group
	until           driver.Instant
}

// run is the guard's life: it starts the command when it has been told a trust deadline, waits for
// a reason to kill it, and kills it. The supervisor ends a guard that it does not need any more.
func (g *guard) run(path string, args []string) {
	catchSignals()
	report{guardReady, 0}.write(g.reports)
	for g.until == 0 {
		if !g.read() {
			return
		}
	}
	adoptOrphans()
	// The kernel sends PR_SET_PDEATHSIG when the thread that started the process ends, so this
	// goroutine keeps its thread.
	runtime.LockOSThread()
	pid, err := syscall.ForkExec(path, args, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: joinGroup(os.Getpid()),
	})
	if err != nil {
		errno, _ := err.(syscall.Errno)
		report{commandRefused, int(errno)}.write(g.reports)
		return
	}
	// If the guard kept the output open, its readers would not see its end when the command ends.
	os.Stdin.Close()
	os.Stdout.Close()
	report{commandStarted, pid}.write(g.reports)
	go g.reap(pid)
	why, told := g.watch(), make(chan struct{})
	go func() { // beside the killing: nobody may read the standard error
		defer close(told)
		io.WriteString(os.Stderr, "holdfast: killing the command: "+why+"\n")
	}()
	g.kill(told)
}

// catchSignals catches the signals that would end or stop a Go program: see package os/signal. The
// runtime catches all others and does nothing. Signals to the group are meant for the command. The
// guard does not ignore them: the command would inherit that. Signals that were ignored when holdfast
// was started stay ignored, and the command inherits that.
//
// It does not simply catch all 64: each one costs several changes of thread, and together they were a
// tenth of what a short command costs.
func catchSignals() {
	const stkflt, emt = 16, 7 // on systems that have them; on others these are other signals
	unread := make(chan os.Signal, 1)
	for _, s := range []syscall.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM,
		syscall.SIGQUIT, syscall.SIGILL, syscall.SIGTRAP, syscall.SIGABRT, syscall.SIGBUS, syscall.SIGFPE,
		syscall.SIGSEGV, syscall.SIGSYS, stkflt, emt,
		syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU,
		syscall.SIGPIPE, // ends a program that writes to a closed standard error
	} {
		if !signal.Ignored(s) {
			signal.Notify(unread, s)
		}
	}
}

// reap reports how the command ends or is stopped, and reaps the orphans that the guard has
// adopted.
func (g *guard) reap(command int) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return // no children any more, and so no orphans to come
		case pid != command:
		case status.Stopped():
			report{commandStopped, int(status.StopSignal())}.write(g.reports)
		default:
			report{commandEnded, exitCode(status)}.write(g.reports)
		}
	}
}

// read reads trust deadlines, of which the last counts. It returns false if the supervisor has died.
func (g *guard) read() bool {
	var buf [4096]byte
	n, err := syscall.Read(g.orders, buf[:])
	switch {
	case err == syscall.EINTR || err == syscall.EAGAIN:
		return true
	case err != nil || n == 0:
		return false
	}
	g.until = driver.Instant(binary.NativeEndian.Uint64(buf[n-8 : n])) // a pipe takes eight bytes as a whole
	return true
}

// kill kills the command and all its descendants, in three steps:
//
//  1. The whole group, by one call, because time is short. For that the guard must leave the group
//     first. It joins the supervisor's group, which is possible if any process is left there.
//  2. Its descendants one by one, until there are no more.
//  3. If step 1 was not possible, the rest of the group, and with it the guard itself. Before that it gives its
//     message a moment.
func (g *guard) kill(told <-chan struct{}) {
	group := syscall.Getpgrp()
	if syscall.Setpgid(0, g.supervisorGroup) == nil {
		syscall.Kill(-group, syscall.SIGKILL)
	}
	for end := time.Now().Add(killTime); killDescendants(nil) > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	select {
	case <-told:
	case <-time.After(10 * time.Millisecond):
	}
	if syscall.Getpgrp() == group {
		syscall.Kill(-group, syscall.SIGKILL)
	}
}

// killTime is for how long the guard goes on killing. A process that hangs in the kernel ends when
// it leaves the kernel.
const killTime = 2 * time.Second

const supervisorGone = "holdfast run has died"

// report is one line that the guard writes to the supervisor.
type report struct {
	what string
	n    int
}

// The reports, in the order in which they come.
const (
	guardReady     = "ready"   // the guard catches all signals now
	commandStarted = "started" // n is the command's process id
	commandRefused = "refused" // instead of started: n is the errno
	commandStopped = "stopped" // n is the signal
	commandEnded   = "ended"   // n is the exit code
)

// readReport returns the next report; io.EOF means that the guard has died.
func readReport(r io.Reader) (report, error) {
	var got report
	_, err := fmt.Fscanln(r, &got.what, &got.n)
	return got, err
}

// write writes the report in one step, so that it arrives whole or not at all.
func (r report) write(fd int) { syscall.Write(fd, fmt.Appendln(nil, r.what, r.n)) }

// exitCode returns the exit code that a shell would show for a process that has ended.
func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}
