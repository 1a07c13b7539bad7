package filelock

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// life is a client's own file: locked, it shows that the client lives. It is a
// named pipe, by which it is woken as well: a client that grants the hold to one of its
// waiters writes 8 bytes there, the hash of the owner. No other client wakes up, and
// nobody polls for it.
type life struct {
	in   *folder
	name string
	id   fileID
	pipe *os.File // both ends: there is always a reader and a writer
	buf  [4096]byte
}

// newSuffix ends the name of a client's file until it is locked.
const newSuffix = ".new"

// lifeType is the type of clients' files.
const lifeType = syscall.S_IFIFO

// isLife reports whether a file may be a client's: a pipe that has no other name.
func isLife(st *syscall.Stat_t) bool {
	return st.Mode&syscall.S_IFMT == lifeType && st.Nlink <= 1
}

func newLife(clients *folder, id string) (*life, error) {
	temp := id + newSuffix
	if err := syscall.Mknodat(int(clients.self.Fd()), temp, syscall.S_IFIFO|0o600, 0); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", clients.path, errReplaced)
	} else if err != nil {
		return nil, explain(err, "", clients.at(temp))
	}
	defer clients.root.Remove(temp)
	fd, st, err := clients.open(temp, os.O_RDWR)
	if err != nil {
		return nil, explain(err, "", clients.at(temp))
	}
	l := &life{in: clients, name: id, id: idOf(&st), pipe: os.NewFile(uintptr(fd), clients.at(id))}
	if !isLife(&st) {
		err = errForeign
	}
	if err == nil {
		err = clients.give(fd, fileMode(clients.mode))
	}
	if err == nil {
		err = flock(fd, syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err == nil {
		err = clients.root.Rename(temp, id)
	}
	if err != nil {
		l.pipe.Close()
		return nil, explain(err, "", clients.at(temp))
	}
	return l, nil
}

// arm sets how long the next listen waits; 0: until it is interrupted.
func (l *life) arm(d time.Duration) {
	if d == 0 {
		l.pipe.SetReadDeadline(time.Time{})
	} else {
		l.pipe.SetReadDeadline(time.Now().Add(d))
	}
}

// interrupt makes listen return.
func (l *life) interrupt() { l.pipe.SetReadDeadline(time.Unix(1, 0)) }

// listen waits, and calls wake for each owner that was written to the pipe. Writes of 8
// bytes are never torn, so neither are reads.
func (l *life) listen(wake func(uint64), wakeAll func()) {
	n, _ := l.pipe.Read(l.buf[:])
	for b := l.buf[:n]; len(b) >= 8; b = b[8:] {
		wake(binary.LittleEndian.Uint64(b))
	}
}

// end frees the file, and deletes it with remove.
func (l *life) end(remove bool) {
	if st, err := l.in.lstat(l.name); remove && err == nil && idOf(st) == l.id {
		l.in.root.Remove(l.name)
	}
	l.pipe.Close()
}

// wakeClient writes to the pipe of another client. One that is lost, because
// nobody reads any more or the pipe is full, is made up for by the next poll.
func (s *store) wakeClient(id string, text []byte) {
	if !validID(id) {
		return
	}
	fd, st, err := s.place.Load().clients.open(id, os.O_WRONLY)
	if err != nil {
		return
	}
	defer closeFD(fd)
	if isLife(&st) { // anything else is not to be written to
		syscall.Write(fd, text)
	}
}
