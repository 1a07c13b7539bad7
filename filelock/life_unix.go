//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"os"
	"syscall"
	"time"
)

// life is a client's own file: locked, it shows that the client lives. Pipes
// cannot be locked here, so nobody is woken: waiters poll at every tick.
type life struct {
	in         *folder
	name       string
	id         fileID
	file       *os.File
	wait       time.Duration
	interrupts chan struct{}
}

// newSuffix ends the name of a client's file until it is locked.
const newSuffix = ".new"

// lifeType is the type of clients' files.
const lifeType = syscall.S_IFREG

// isLife reports whether a file may be a client's: an empty one that has no other
// name.
func isLife(st *syscall.Stat_t) bool {
	return st.Mode&syscall.S_IFMT == lifeType && st.Nlink <= 1 && st.Size == 0
}

func newLife(clients *folder, id string) (*life, error) {
	temp := id + newSuffix
	fd, err := clients.openAt(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return nil, explain(err, "", clients.at(temp))
	}
	defer clients.root.Remove(temp)
	l := &life{in: clients, name: id, file: os.NewFile(uintptr(fd), clients.at(id)), interrupts: make(chan struct{}, 1)}
	var st syscall.Stat_t
	if err = syscall.Fstat(fd, &st); err == nil {
		l.id = idOf(&st)
		err = clients.give(fd, fileMode(clients.mode))
	}
	if err == nil {
		err = flock(fd, syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err == nil {
		err = clients.root.Rename(temp, id)
	}
	if err != nil {
		l.file.Close()
		return nil, explain(err, "", clients.at(temp))
	}
	return l, nil
}

func (l *life) arm(d time.Duration) { l.wait = d }

func (l *life) interrupt() {
	select {
	case l.interrupts <- struct{}{}:
	default:
	}
}

func (l *life) listen(wake func(uint64), wakeAll func()) {
	if l.wait == 0 {
		<-l.interrupts
		return
	}
	select {
	case <-l.interrupts:
	case <-time.After(l.wait):
		wakeAll()
	}
}

// end frees the file, and deletes it with remove.
func (l *life) end(remove bool) {
	if st, err := l.in.lstat(l.name); remove && err == nil && idOf(st) == l.id {
		l.in.root.Remove(l.name)
	}
	l.file.Close()
}

func (s *store) wakeClient(string, []byte) {}
