//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// life is a client's own file: locked, it shows that the client lives. Pipes
// cannot be locked here, so there is no doorbell: waiters look at every tick.
type life struct {
	path  string
	file  *os.File
	wait  time.Duration
	noise chan struct{}
}

func newLife(dir, id string, perm os.FileMode) (*life, error) {
	temp := filepath.Join(dir, id+".new")
	fd, err := openFD(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return nil, explain(err, "", temp)
	}
	defer os.Remove(temp)
	l := &life{path: filepath.Join(dir, id), file: os.NewFile(uintptr(fd), temp), noise: make(chan struct{}, 1)}
	if err := flock(fd, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		l.file.Close()
		return nil, explain(err, "", temp)
	}
	if err := os.Rename(temp, l.path); err != nil {
		l.file.Close()
		return nil, explain(err, "", temp)
	}
	return l, nil
}

func (l *life) arm(d time.Duration) { l.wait = d }

func (l *life) disturb() {
	select {
	case l.noise <- struct{}{}:
	default:
	}
}

func (l *life) listen(rung func(uint64), all func()) {
	if l.wait == 0 {
		<-l.noise
		return
	}
	select {
	case <-l.noise:
	case <-time.After(l.wait):
		all()
	}
}

// end frees the file, and deletes it with remove.
func (l *life) end(remove bool) {
	if remove {
		os.Remove(l.path)
	}
	l.file.Close()
}

func (s *store) knock(string, []byte) {}
