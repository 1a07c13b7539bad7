package child

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/holdfastlock/holdfast/driver"
)

// joinGroup makes a new process a member of the group before its first instruction, and has the
// kernel kill it when its parent dies.
func joinGroup(group int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pgid: group, Pdeathsig: syscall.SIGKILL}
}

// showName gives this process a name for ps, of up to 15 bytes: it was started by way of /proc, as "exe". That is
// the name of the main thread, on which init runs.
func showName(name string) {
	if text, err := unix.BytePtrFromString(name); err == nil {
		unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(text)), 0, 0, 0)
	}
}

// adoptOrphans makes this process the parent of its descendants' orphans, so that it finds them in
// whatever group and session they are. If the kernel refuses, the group can still be killed.
func adoptOrphans() { unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// watch returns when the group must be killed, and says why. Instants are readings of
// CLOCK_BOOTTIME, so the supervisor's instants are valid here too.
func (g *guard) watch() string {
	timer, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		timer = -1 // poll ignores it: then only the supervisor's death counts
	}
	for {
		if g.until != 0 {
			at := unix.NsecToTimespec(int64(g.until))
			unix.TimerfdSettime(timer, unix.TFD_TIMER_ABSTIME, &unix.ItimerSpec{Value: at}, nil)
		}
		fds := []unix.PollFd{{Fd: int32(g.orders), Events: unix.POLLIN}, {Fd: int32(timer), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err != nil {
			continue // EINTR
		}
		switch {
		case fds[0].Revents != 0:
			// A new deadline is read before the old one is checked: after a stop of the group both
			// may be waiting.
			if !g.read() {
				return supervisorGone
			}
		case g.until != 0 && driver.HostClock.Now() >= g.until:
			return "holdfast run has stood still until its lock ran out"
		}
	}
}
