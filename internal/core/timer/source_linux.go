package timer

import (
	"os"
	"syscall"
	"time"
	"unsafe"

	"github.com/holdfastlock/holdfast/driver"
)

// Of linux/timerfd.h and linux/time.h; see timerfd_create(2).
const (
	clockBoottime = 7
	tfdNonblock   = syscall.O_NONBLOCK
	tfdCloexec    = syscall.O_CLOEXEC
)

type itimerspec struct{ interval, value syscall.Timespec }

// timerfd is a timer that counts suspended time. One goroutine waits for it.
type timerfd struct {
	fd   int
	file *os.File // in the runtime's poller, so that the goroutine costs no thread
}

func newSource(clock driver.Clock, fire func()) source {
	if clock != driver.HostClock {
		return newPortable(fire)
	}
	fd, _, errno := syscall.Syscall(syscall.SYS_TIMERFD_CREATE, clockBoottime, tfdNonblock|tfdCloexec, 0)
	if errno != 0 {
		// No descriptor left, say. Leases are then still right at every look,
		// and only their channels late after a suspension.
		return newPortable(fire)
	}
	t := &timerfd{fd: int(fd), file: os.NewFile(fd, "timerfd")}
	go t.wait(fire)
	return t
}

func (t *timerfd) wait(fire func()) {
	var expirations [8]byte
	for {
		if _, err := t.file.Read(expirations[:]); err != nil {
			return // closed
		}
		fire()
	}
}

func (t *timerfd) set(d time.Duration) {
	// Zero would turn the timer off instead of firing it.
	spec := itimerspec{value: syscall.NsecToTimespec(int64(max(1, d)))}
	// The arguments are right by construction, so this cannot fail.
	_, _, _ = syscall.Syscall6(syscall.SYS_TIMERFD_SETTIME, uintptr(t.fd), 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
}

func (t *timerfd) close() { _ = t.file.Close() }
