//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"
)

// Each client has a file named after its id, and holds its flock as long as it lives: the kernel frees
// it when the process dies, however it dies, and not while it is stopped. So whoever can lock the file
// knows that the client is dead. The file gets its name only once it is locked, and no id is ever used
// again, so there is no moment at which a live client seems dead.
type life struct {
	in   *folder
	name string
	id   fileID
	file *os.File

	listening sync.Once
	ended     chan struct{} // closed when nobody listens any more; nil: nobody ever did
}

func newLife(clients *folder, id string) (*life, error) {
	temp := temporary()
	fd, err := makeLife(clients, temp)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", clients.path, errReplaced)
	} else if err != nil {
		return nil, explain(err, "", clients.at(temp))
	}
	defer clients.root.Remove(temp)
	l := &life{in: clients, name: id, file: os.NewFile(uintptr(fd), clients.at(id))}
	var st syscall.Stat_t
	if err = syscall.Fstat(fd, &st); err == nil && !isLife(&st) {
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
		l.file.Close()
	}
	l.id = idOf(&st)
	return l, explain(err, "", clients.at(temp))
}

// end frees the file, and deletes it with remove.
func (l *life) end(remove bool) {
	if st, err := l.in.lstat(l.name); remove && err == nil && idOf(st) == l.id {
		l.in.root.Remove(l.name)
	}
	l.file.Close()
	if l.ended != nil {
		<-l.ended
	}
}

// local are the clients of this process, by id.
var local sync.Map // string -> *client

// alive reports false if the client is dead for certain.
func (s *store) alive(id string) bool { return s.place.Load().alive(id) }

// alive reports false if the client is dead for certain.
func (p *place) alive(id string) bool {
	if _, ok := local.Load(id); ok || !validID(id) {
		return true // one that has no id of ours is ended by its TTL
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.seen[id]) < aliveFor {
		return true
	}
	if p.probe(id) {
		if p.seen == nil || len(p.seen) > 4096 {
			p.seen = map[string]time.Time{}
		}
		p.seen[id] = now
		return true
	}
	return false
}

// aliveFor is how long a client that was found alive is taken to be so. In a crowd each operation asks.
const aliveFor = 10 * time.Millisecond

func (p *place) probe(id string) bool {
	fd, st, err := p.clients.open(id, os.O_RDONLY)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist) // closed, or found dead before and cleaned
	}
	defer closeFD(fd)
	if st.Mode&syscall.S_IFMT != lifeType {
		return false // it never was a client
	}
	return flock(fd, syscall.LOCK_SH|syscall.LOCK_NB) != nil
}

// idLength is the length of a client's id.
const idLength = 32

// validID reports whether a client may have this id: hex digits, and so no path.
func validID(id string) bool {
	for i := 0; i < len(id); i++ {
		if c := id[i]; c < '0' || c > '9' && c < 'a' || c > 'f' {
			return false
		}
	}
	return len(id) == idLength
}
