//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// temps numbers temporary files.
var temps atomic.Int64

// temporary makes a new file.
func (d *folder) temporary() (name string, fd int, err error) {
	for {
		name = fmt.Sprintf("%d-%d-%d%s", os.Getpid(), temps.Add(1), time.Now().UnixNano(), tempSuffix)
		fd, err = d.openAt(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
		if errors.Is(err, fs.ErrExist) {
			continue // of a process with the same number in another container
		}
		if err != nil {
			return name, -1, err
		}
		if err = d.give(fd, fileMode(d.mode)); err != nil {
			closeFD(fd)
			d.root.Remove(name)
			return name, -1, err
		}
		return name, fd, nil
	}
}

const tempSuffix = ".tmp"

// isTemporary reports whether temporary may have made a file of this name.
func isTemporary(name string) bool {
	numbers, ok := strings.CutSuffix(name, tempSuffix)
	parts := strings.Split(numbers, "-")
	for _, part := range parts {
		if n, err := strconv.ParseInt(part, 10, 64); err != nil || n < 0 || strconv.FormatInt(n, 10) != part {
			return false
		}
	}
	return ok && len(parts) == 3
}

// publish makes a file with this content, unless there is one meanwhile. It
// appears complete, with its mode, under a link. With sync a power cut does not
// undo it.
func (d *folder) publish(name string, content []byte, sync bool) error {
	temp, err := d.prepare(content, sync)
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
func (d *folder) prepare(content []byte, sync bool) (name string, err error) {
	name, fd, err := d.temporary()
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w: %w", errReplaced, err)
	} else if err != nil {
		return "", err
	}
	defer closeFD(fd)
	if err = pwrite(fd, content, 0); err == nil && sync {
		err = errors.Join(syscall.Fsync(fd), d.self.Sync())
	}
	if err != nil {
		d.root.Remove(name)
	}
	return name, err
}
