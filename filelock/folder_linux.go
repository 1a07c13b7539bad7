package filelock

import "syscall"

// openAt opens a file that children do not inherit, and that is none behind a
// symbolic link. Beside os.Root it spares what a renewal of thousands of names
// would feel.
func (d *folder) openAt(name string, flags int) (int, error) {
	for {
		fd, err := syscall.Openat(int(d.self.Fd()), name, flags|syscall.O_CLOEXEC|syscall.O_NOFOLLOW, 0o600)
		if err != syscall.EINTR {
			return fd, err
		}
	}
}
