package filelock

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// life is a client's own file: locked, it shows that the client lives. It is a
// named pipe and so its doorbell as well: whoever grants one of its waiters the
// hold writes 8 bytes, the hash of the owner. No other client wakes up, and
// nobody polls for it.
type life struct {
	path string
	pipe *os.File // both ends: there is always a reader and a writer
	buf  [4096]byte
}

func newLife(dir, id string, perm os.FileMode) (*life, error) {
	temp := filepath.Join(dir, id+".new")
	if err := syscall.Mkfifo(temp, uint32(perm)); err != nil {
		return nil, explain(err, "", temp)
	}
	defer os.Remove(temp)
	if err := os.Chmod(temp, perm); err != nil {
		return nil, explain(err, "", temp)
	}
	fd, err := openFD(temp, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, explain(err, "", temp)
	}
	l := &life{path: filepath.Join(dir, id), pipe: os.NewFile(uintptr(fd), temp)}
	if err := flock(fd, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		l.pipe.Close()
		return nil, explain(err, "", temp)
	}
	if err := os.Rename(temp, l.path); err != nil {
		l.pipe.Close()
		return nil, explain(err, "", temp)
	}
	return l, nil
}

// arm sets how long the next listen waits; 0: until it is disturbed.
func (l *life) arm(d time.Duration) {
	if d == 0 {
		l.pipe.SetReadDeadline(time.Time{})
	} else {
		l.pipe.SetReadDeadline(time.Now().Add(d))
	}
}

// disturb makes listen return.
func (l *life) disturb() { l.pipe.SetReadDeadline(time.Unix(1, 0)) }

// listen waits and calls rung for each ring of the bell. Writes of 8 bytes are
// never torn, so neither are reads.
func (l *life) listen(rung func(uint64), all func()) {
	n, _ := l.pipe.Read(l.buf[:])
	for b := l.buf[:n]; len(b) >= 8; b = b[8:] {
		rung(binary.LittleEndian.Uint64(b))
	}
}

// end frees the file, and deletes it with remove.
func (l *life) end(remove bool) {
	if remove {
		os.Remove(l.path)
	}
	l.pipe.Close()
}

// knock writes to the pipe of another client. A ring that is lost, because
// nobody reads any more or the pipe is full, is made up for by the next poll.
func (s *store) knock(path string, text []byte) {
	fd, err := openFD(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer closeFD(fd)
	syscall.Write(fd, text)
}
