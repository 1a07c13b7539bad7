//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// folder is an open directory. Another user who may write there can put a link in the place of a file
// or of a directory. What is done through a folder is done in the directory that was opened, and follows
// no link.
type folder struct {
	path string // for messages, and to see whether it still leads here
	root *os.Root
	self *os.File // for system calls that os.Root does not have
	id   fileID
	mode fs.FileMode // of the directory; files get fileMode of it
	gid  uint32      // its group, which its files get too
}

// openFolder opens a directory, by its path or, where above is not nil, by its name below that. It must
// not be a link.
func openFolder(above *folder, name string) (*folder, error) {
	path, lstat, open := name, os.Lstat, os.OpenRoot
	if above != nil {
		path, lstat, open = above.at(name), above.root.Lstat, above.root.OpenRoot
	}
	seen, err := lstat(name)
	if err != nil {
		return nil, err
	}
	if seen.Mode()&fs.ModeSymlink != 0 {
		return nil, fmt.Errorf("%s is a symbolic link, where a directory belongs", path)
	}
	root, err := open(name)
	if err != nil {
		return nil, err
	}
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

// open opens a file and returns what it is. It waits for nothing: what has the name may be a pipe.
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

// errForeign is something that this package has not made.
var errForeign = errors.New("not one of Holdfast's files")

// openRegular opens a regular file.
func (d *folder) openRegular(name string, flags int) (fd int, st syscall.Stat_t, err error) {
	fd, st, err = d.open(name, flags)
	if err == nil && st.Mode&syscall.S_IFMT != syscall.S_IFREG {
		closeFD(fd)
		return -1, st, fmt.Errorf("%w: it is not a regular file", errForeign)
	}
	return fd, st, err
}

// checkLinks returns an error if an open file has a name elsewhere: another user who may write here could
// have linked a file of somebody's, a record of other locks say, to have it locked and changed.
func (d *folder) checkLinks(name string, st *syscall.Stat_t) error {
	// A file that is being published, or moved by a thief, has two names for a moment, and keeps them if
	// the process is killed then. Both are here.
	for i := 0; st.Nlink > 1; i++ {
		twins, err := d.names()
		links := 0
		for _, twin := range twins {
			if twin == name || twin == name+oldSuffix || twin+oldSuffix == name || isTemporary(twin) {
				if other, err := d.lstat(twin); err == nil && idOf(other) == idOf(st) {
					links++
				}
			}
		}
		now, nowErr := d.lstat(name)
		switch {
		case err != nil:
			return err
		case links >= int(st.Nlink), errors.Is(nowErr, fs.ErrNotExist), nowErr == nil && idOf(now) != idOf(st):
			return nil // or moved on meanwhile: an operation that changes it checks that afterwards
		case nowErr != nil:
			return nowErr
		case i == 100:
			return fmt.Errorf("%w: it has another name elsewhere (hard link)", errForeign)
		}
		st.Nlink = now.Nlink
	}
	return nil
}

// read returns what a file of ours begins with.
func (d *folder) read(name string) ([]byte, error) {
	fd, st, err := d.openRegular(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer closeFD(fd)
	b := make([]byte, min(st.Size, 1<<16))
	n, err := pread(fd, b, 0)
	return b[:n], err
}

// publish makes a file with this content, unless there is one meanwhile. It appears complete, with its
// mode, under a link.
func (d *folder) publish(name string, content []byte) error {
	temp, err := d.prepare(content)
	if err != nil {
		return err
	}
	defer d.root.Remove(temp)
	if err := d.root.Link(temp, name); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// prepare makes a temporary file with this content.
func (d *folder) prepare(content []byte) (name string, err error) {
	name = temporary()
	fd, err := d.openAt(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w: %w", errReplaced, err)
	} else if err != nil {
		return "", err
	}
	defer closeFD(fd)
	if err = d.give(fd, fileMode(d.mode)); err == nil {
		err = pwrite(fd, content, 0)
	}
	if err != nil {
		d.root.Remove(name)
	}
	return name, err
}

const tempSuffix = ".tmp"

// temporary returns a new name for a file that is being made.
func temporary() string { return rand.Text() + tempSuffix }

// isTemporary reports whether temporary may have returned this name.
func isTemporary(name string) bool {
	text, ok := strings.CutSuffix(name, tempSuffix)
	return ok && len(text) == 26 && strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

// subMode is the mode of the directories in a directory: they are for those only who may write in it.
// Others could give a record another name elsewhere, and so make it one that cannot be trusted
// (checkLinks).
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

// fileMode is the mode of the files in a directory: they, too, are for those only who may write in it. A
// user who could merely read a file could lock it with flock, and stop everybody.
func fileMode(dir fs.FileMode) fs.FileMode { return subMode(dir) & 0o666 }

// give gives a new file or directory a mode and the group of the folder: the umask may have taken bits
// away, and without the set-group-ID bit of the folder what is made in it has the group of its process.
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

// pread reads once: of a regular file less than was asked for is all there is.
func pread(fd int, b []byte, offset int64) (int, error) {
	for {
		if n, err := syscall.Pread(fd, b, offset); err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}

// pwrite writes all of b.
func pwrite(fd int, b []byte, offset int64) error {
	for len(b) > 0 {
		n, err := pwriteOnce(fd, b, offset)
		switch {
		case err != nil:
			return err
		case n == 0:
			return syscall.ENOSPC
		}
		b, offset = b[n:], offset+int64(n)
	}
	return nil
}

func pwriteOnce(fd int, b []byte, offset int64) (int, error) {
	for {
		if n, err := syscall.Pwrite(fd, b, offset); err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}

func closeFD(fd int) { syscall.Close(fd) }
