//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// folder is an open directory. Suppose another user who may write there puts a
// link in the place of a file or of a directory: what is done through a folder
// is done in the directory that was opened, and follows no link.
type folder struct {
	path string // for messages, and to see whether it still leads here
	root *os.Root
	self *os.File // for system calls that os.Root does not have
	id   fileID
	mode fs.FileMode // of the directory; files get fileMode of it
	gid  uint32      // its group, which its files get too
}

// openFolder opens a directory by its path, which must not end in a link.
func openFolder(path string) (*folder, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return nil, fmt.Errorf("%s is a symbolic link, where a directory belongs", path)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return newFolder(root, path, info)
}

// sub opens a directory below d.
func (d *folder) sub(name string) (*folder, error) {
	path := d.at(name)
	info, err := d.root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return nil, fmt.Errorf("%s is a symbolic link, where a directory belongs", path)
	}
	root, err := d.root.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	return newFolder(root, path, info)
}

// newFolder returns the folder of an open directory, which must be the one that
// was looked at before.
func newFolder(root *os.Root, path string, seen fs.FileInfo) (*folder, error) {
	self, err := root.Open(".")
	if err != nil {
		root.Close()
		return nil, err
	}
	d := &folder{path: path, root: root, self: self}
	info, err := self.Stat()
	if err == nil && !os.SameFile(info, seen) {
		err = fmt.Errorf("%s was replaced while it was opened", path)
	}
	if err != nil {
		d.close()
		return nil, err
	}
	st := info.Sys().(*syscall.Stat_t)
	d.mode, d.gid, d.id = info.Mode(), st.Gid, idOf(st)
	return d, nil
}

func (d *folder) close() {
	d.self.Close()
	d.root.Close()
}

// at returns the path of a file, for messages.
func (d *folder) at(name string) string { return d.path + string(filepath.Separator) + name }

// current reports whether the folder's path leads to it.
func (d *folder) current() bool {
	var st syscall.Stat_t
	return syscall.Lstat(d.path, &st) == nil && idOf(&st) == d.id
}

// lstat describes what has this name.
func (d *folder) lstat(name string) (*syscall.Stat_t, error) {
	info, err := d.root.Lstat(name)
	if err != nil {
		return nil, err
	}
	return info.Sys().(*syscall.Stat_t), nil
}

// names lists the folder.
func (d *folder) names() ([]string, error) {
	dir, err := d.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}

// open opens a file and returns what it is. It waits for nothing: what has the
// name may be a pipe.
func (d *folder) open(name string, flags int) (fd int, st syscall.Stat_t, err error) {
	if fd, err = d.openAt(name, flags|syscall.O_NONBLOCK); err != nil {
		return -1, st, err
	}
	if err = syscall.Fstat(fd, &st); err != nil {
		closeFD(fd)
		return -1, st, err
	}
	return fd, st, nil
}

// openRegular opens a regular file.
func (d *folder) openRegular(name string, flags int) (fd int, st syscall.Stat_t, err error) {
	fd, st, err = d.open(name, flags)
	if err == nil && st.Mode&syscall.S_IFMT != syscall.S_IFREG {
		closeFD(fd)
		return -1, st, fmt.Errorf("%w: it is not a regular file", errForeign)
	}
	return fd, st, err
}

// errForeign is something that this package has not made.
var errForeign = errors.New("not one of Holdfast's files")

// checkLinks returns an error if an open file has a name elsewhere: another user
// who may write here could have linked a file of somebody's, a record of other
// locks say, to have it locked and changed.
func (d *folder) checkLinks(name string, st *syscall.Stat_t) error {
	// A file that is being published, or moved by a thief, has two names for a
	// moment, and keeps them if the process is killed then. Both are here.
	for i := 0; st.Nlink > 1; i++ {
		twins, err := d.names()
		if err != nil {
			return err
		}
		links := 0
		for _, twin := range twins {
			if twin != name && twin != name+oldSuffix && twin+oldSuffix != name && !isTemporary(twin) {
				continue
			}
			if other, err := d.lstat(twin); err == nil && idOf(other) == idOf(st) {
				links++
			}
		}
		if links >= int(st.Nlink) {
			return nil
		}
		now, err := d.lstat(name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && idOf(now) != idOf(st) {
			return nil // moved on meanwhile: an operation that changes it checks that afterwards
		} else if err != nil {
			return err
		}
		if i == 100 {
			return fmt.Errorf("%w: it has another name elsewhere (hard link)", errForeign)
		}
		st.Nlink = now.Nlink
	}
	return nil
}
