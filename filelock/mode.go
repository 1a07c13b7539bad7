//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"fmt"
	"io/fs"
	"syscall"
)

// subMode is the mode of the directories in a directory: they are for those only
// who may write in it. Others could give a record another name elsewhere, and
// so make it one that cannot be trusted (checkLinks).
func subMode(dir fs.FileMode) fs.FileMode {
	mode := fs.FileMode(0o700)
	if dir&0o030 == 0o030 { // may write and enter
		mode |= 0o070
	}
	if dir&0o003 == 0o003 {
		mode |= 0o007
	}
	return mode
}

// fileMode is the mode of the files in a directory: they, too, are for those only
// who may write in it. A user who could merely read a file could lock it with
// flock, and stop everybody.
func fileMode(dir fs.FileMode) fs.FileMode { return subMode(dir) & 0o666 }

// give gives a new file or directory a mode and the group of the folder: the umask
// may have taken bits away, and without the set-group-ID bit of the folder what
// is made in it has the group of its process.
func (d *folder) give(fd int, mode fs.FileMode) error {
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return err
	}
	// Where everybody may write, the group does not matter.
	if mode&0o070 != 0 && mode&0o002 == 0 && st.Gid != d.gid {
		if err := syscall.Fchown(fd, -1, int(d.gid)); err != nil {
			return fmt.Errorf("the files in %s belong to group %d, and this process cannot give it one: %w", d.path, d.gid, err)
		}
	}
	if fs.FileMode(st.Mode)&0o777 == mode {
		return nil
	}
	kept := uint32(st.Mode) & syscall.S_ISGID // of a directory
	return syscall.Fchmod(fd, uint32(mode)|kept)
}

// tighten takes from others the right to open a file that an older release made
// readable for them. Only its owner can, so errors are no news.
func (d *folder) tighten(fd int, mode fs.FileMode) {
	if mode&^fileMode(d.mode) != 0 {
		syscall.Fchmod(fd, uint32(mode&fileMode(d.mode)))
	}
}
