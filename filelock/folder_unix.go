//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"errors"
	"os"
	"syscall"
)

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
