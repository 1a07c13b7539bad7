package child

import (
	"golang.org/x/sys/unix"

	"github.com/holdfastlock/holdfast/driver"
)

// watch returns when the group is to be killed, and why. Instants are readings
// of CLOCK_BOOTTIME, so that those of the holder are ours too.
func (g *guard) watch() string {
	timer, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		timer = -1 // poll passes over it: only the holder's end counts
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
			// News come before the deadline: after the group was stopped there
			// may be both.
			if !g.read() {
				return holderGone
			}
		case g.until != 0 && driver.HostClock.Now() >= g.until:
			return "holdfast run has stood still until its lock ran out"
		}
	}
}
