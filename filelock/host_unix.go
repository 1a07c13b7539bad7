//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// storeTime is the wall clock: the instants of different processes cannot be
// compared here.
func storeTime(driver.Instant) driver.Instant { return driver.Instant(time.Now().UnixNano()) }

func checkClock() error { return nil }

// bootID need not tell boots apart, for the wall clock goes on over them.
func bootID() (string, error) { return "wall clock", nil }

// openAt opens a file that children do not inherit, and that is none behind a
// symbolic link.
func (d *folder) openAt(name string, flags int) (int, error) {
	f, err := d.root.OpenFile(name, flags, 0o600)
	if err != nil {
		return -1, err
	}
	defer f.Close()
	here, err := f.Stat()
	if err != nil {
		return -1, err
	}
	// os.Root follows links as long as they stay inside.
	there, err := d.root.Lstat(name)
	if err == nil && there.Mode()&os.ModeSymlink != 0 && !os.SameFile(here, there) {
		return -1, syscall.ELOOP
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return -1, err
	}
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, err := syscall.Dup(int(f.Fd()))
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	return fd, err
}

// A client's file is an empty one. Pipes cannot be locked here, so nobody is woken: waiters poll at every
// tick.
const lifeType = syscall.S_IFREG

// isLife reports whether a file may be a client's: an empty one that has no other name.
func isLife(st *syscall.Stat_t) bool {
	return st.Mode&syscall.S_IFMT == lifeType && st.Nlink <= 1 && st.Size == 0
}

// makeLife makes and opens the file of a client.
func makeLife(clients *folder, name string) (fd int, err error) {
	return clients.openAt(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

// wakes says that waiters in other processes are told of their grants.
const wakes = false

func (l *life) listen(func(uint64)) {}

func (p *place) wakeClient(string, []byte) {}
