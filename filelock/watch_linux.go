package filelock

import (
	"encoding/binary"
	"os"
	"syscall"
)

// A client's file is a named pipe, by which it is woken as well: a client that grants the hold to one
// of its waiters writes 8 bytes there, the hash of the owner. No other client wakes up, and nobody polls
// for it.
const lifeType = syscall.S_IFIFO

// isLife reports whether a file may be a client's: a pipe that has no other name.
func isLife(st *syscall.Stat_t) bool {
	return st.Mode&syscall.S_IFMT == lifeType && st.Nlink <= 1
}

// makeLife makes and opens the file of a client: both ends, so there is always a reader and a writer.
func makeLife(clients *folder, name string) (fd int, err error) {
	if err := syscall.Mknodat(int(clients.self.Fd()), name, syscall.S_IFIFO|0o600, 0); err != nil {
		return -1, err
	}
	fd, _, err = clients.open(name, os.O_RDWR)
	return fd, err
}

// wakes says that waiters in other processes are told of their grants.
const wakes = true

// listen begins to call wake for each owner that is written to the pipe, until the file is closed. It is
// the one goroutine of a client that has had waiters.
func (l *life) listen(wake func(uint64)) {
	l.listening.Do(func() {
		l.ended = make(chan struct{})
		go func() {
			defer close(l.ended)
			var buf [4096]byte
			for {
				n, err := l.file.Read(buf[:])
				for b := buf[:n]; len(b) >= 8; b = b[8:] { // writes of 8 bytes are never torn
					wake(binary.LittleEndian.Uint64(b))
				}
				if err != nil {
					return
				}
			}
		}()
	})
}

// wakeClient writes to the pipe of another client. One that is lost, because nobody reads any more or
// the pipe is full, is made up for by the next poll.
func (p *place) wakeClient(id string, text []byte) {
	fd, st, err := p.clients.open(id, os.O_WRONLY)
	if err != nil {
		return
	}
	defer closeFD(fd)
	if isLife(&st) { // anything else is not to be written to
		syscall.Write(fd, text)
	}
}
