//go:build unix

package child

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfastlock/holdfast/driver"
)

// GuardIfAsked makes this process a guard, and does not return, if it has been
// started as one. A program that uses Start must call it first of all.
func GuardIfAsked() {
	if len(os.Args) < 6 || os.Args[0] != guardName {
		return
	}
	var numbers [3]int
	for i := range numbers {
		n, err := strconv.Atoi(os.Args[1+i])
		if err != nil {
			os.Exit(1)
		}
		numbers[i] = n
	}
	g := guard{orders: numbers[0], reports: numbers[1], holderGroup: numbers[2]}
	syscall.CloseOnExec(g.orders)
	syscall.CloseOnExec(g.reports)
	g.run(os.Args[4], os.Args[5:])
	os.Exit(0)
}

// guard runs the command and waits for a reason to kill it.
type guard struct {
	orders      int // the descriptor from which trust deadlines are read
	reports     int // the one to which reports are written
	holderGroup int // the process group of the process that holds the lock
	until       driver.Instant
	rest        []byte // the beginning of a line
}

func (g *guard) run(path string, args []string) {
	// The kernel sends PR_SET_PDEATHSIG when the thread that started the process
	// ends, so this goroutine keeps its thread.
	runtime.LockOSThread()
	deafen()
	report{guardReady, 0}.write(g.reports)
	for g.until == 0 {
		if !g.read() {
			return
		}
	}
	adoptOrphans()
	pid, err := syscall.ForkExec(path, args, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: joinGroup(os.Getpid()),
	})
	if err != nil {
		errno, _ := err.(syscall.Errno)
		report{commandRefused, int(errno)}.write(g.reports)
		return
	}
	// Whoever reads the command's output must see its end when the command ends.
	os.Stdin.Close()
	os.Stdout.Close()
	report{commandStarted, pid}.write(g.reports)
	go g.reap(pid)
	why := g.watch()
	// Time is short: nothing is said where nobody reads it.
	if fds := []unix.PollFd{{Fd: 2, Events: unix.POLLOUT}}; polled(fds) && fds[0].Revents&unix.POLLOUT != 0 {
		fmt.Fprintf(os.Stderr, "holdfast: killing the command: %s\n", why)
	}
	g.kill()
}

// deafen has all signals caught and forgotten, because what is sent to the group is
// the command's. They are not ignored: the command would inherit that. What is
// ignored already was so when holdfast was started, and the command inherits it.
func deafen() {
	const last = 64 // the last real-time signal
	forgotten := make(chan os.Signal, 1)
	for s := syscall.Signal(1); s <= last; s++ {
		if !signal.Ignored(s) {
			signal.Notify(forgotten, s)
		}
	}
}

// reap reports what becomes of the command, and reaps the orphans that the guard
// has adopted.
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

// polled reports whether one of the descriptors is ready now.
func polled(fds []unix.PollFd) bool {
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// read takes in what the holder has written, and returns false if it is gone.
func (g *guard) read() bool {
	var buf [4096]byte
	n, err := syscall.Read(g.orders, buf[:])
	switch {
	case err == syscall.EINTR || err == syscall.EAGAIN:
		return true
	case err != nil || n == 0:
		return false
	}
	g.rest = append(g.rest, buf[:n]...)
	for {
		line, rest, ok := bytes.Cut(g.rest, []byte("\n"))
		if !ok {
			return true
		}
		if until, err := strconv.ParseInt(string(line), 10, 64); err == nil {
			g.until = driver.Instant(until)
		}
		g.rest = rest
	}
}

// kill kills the whole group by one call, because time is short, and then what has left
// it. For the first the guard must leave the group itself: to the holder's, if any
// process is left there. If none is, the guard kills its descendants one by one,
// until there are no more, and the rest of the group with itself at the end.
func (g *guard) kill() {
	group := syscall.Getpgrp()
	if syscall.Setpgid(0, g.holderGroup) == nil {
		syscall.Kill(-group, syscall.SIGKILL)
	}
	for end := time.Now().Add(killFor); killDescendants(nil) > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if syscall.Getpgrp() == group {
		syscall.Kill(-group, syscall.SIGKILL)
	}
}

// killFor is for how long the guard goes on killing. A process that hangs in the
// kernel ends when it comes out.
const killFor = 2 * time.Second

const holderGone = "holdfast run has died"
