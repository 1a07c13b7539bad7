//go:build unix

package child

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfastlock/holdfast/driver"
)

// GuardIfAsked makes this process a guard, and does not return, if it has been
// started as one. A program that uses Start must call it first of all.
func GuardIfAsked() {
	if len(os.Args) == 0 || os.Args[0] != guardName {
		return
	}
	signal.Ignore() // all of them: what is sent to the group is the command's
	g := guard{before: map[int]bool{os.Getpid(): true}}
	for i, arg := range os.Args[1:] {
		switch pid, err := strconv.Atoi(arg); {
		case err != nil:
		case i == 0:
			// Told, and not asked of the kernel: it would name init, if the holder
			// has died by now, and init's children are not ours to kill.
			g.holder = pid
		default:
			g.before[pid] = true
		}
	}
	os.Stdout.Write([]byte{'\n'})
	os.Stdout.Close()
	why := g.watch()
	// Time is short: nothing is said where nobody reads it.
	if fds := []unix.PollFd{{Fd: 2, Events: unix.POLLOUT}}; polled(fds) && fds[0].Revents&unix.POLLOUT != 0 {
		fmt.Fprintf(os.Stderr, "holdfast: killing the command: %s\n", why)
	}
	g.kill()
	os.Exit(0)
}

// polled reports whether one of the descriptors is ready now.
func polled(fds []unix.PollFd) bool {
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// guard waits for a reason to kill its group.
type guard struct {
	holder int          // the process that holds the lock
	before map[int]bool // children of the holder that are not the command's
	until  driver.Instant
	rest   []byte // the beginning of a line
}

// read takes in what the holder has written, and returns false if it is gone.
func (g *guard) read() bool {
	var buf [4096]byte
	n, err := syscall.Read(0, buf[:])
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

// kill kills the group first, because time is short, and then what has left it.
// For that we must leave the group ourselves: to the holder's, if it is there
// still. If it is not, nobody has adopted those who left, and they are not to be
// found.
func (g *guard) kill() {
	group := syscall.Getpgrp()
	other, err := syscall.Getpgid(g.holder)
	if os.Getppid() != g.holder || err != nil || syscall.Setpgid(0, other) != nil {
		syscall.Kill(-group, syscall.SIGKILL) // and so ourselves
		return
	}
	syscall.Kill(-group, syscall.SIGKILL)
	for tries := 0; killDescendants(g.holder, g.before) > 0 && tries < 100; tries++ {
		time.Sleep(time.Millisecond)
	}
}

const holderGone = "holdfast run has died"
