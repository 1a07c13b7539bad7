//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"
)

// Each client has a file named after its id, and holds its flock as long as it
// lives: the kernel frees it when the process dies, however it dies, and not
// while it is stopped. So whoever can lock the file knows that the client is
// dead. The file gets its name only once it is locked, and no id is ever used
// again, so there is no moment at which a live client seems dead.

// local are the clients of this process, by id.
var local sync.Map // string -> *client

// liveness remembers for a moment which clients were found alive.
type liveness struct {
	mu   sync.Mutex
	seen map[string]probed
}

// probed is what was found of one client. The dead stay dead.
type probed struct {
	dead bool
	at   time.Time
}

// aliveFor is how long a client that was found alive is taken to be so.
const aliveFor = 10 * time.Millisecond

// alive reports false if the client is dead for certain.
func (s *store) alive(id string) bool {
	if _, ok := local.Load(id); ok {
		return true
	}
	now := time.Now()
	s.liveness.mu.Lock()
	b, ok := s.liveness.seen[id]
	s.liveness.mu.Unlock()
	if ok && (b.dead || now.Sub(b.at) < aliveFor) {
		return !b.dead
	}
	b = probed{dead: s.probe(id), at: now}
	s.liveness.mu.Lock()
	defer s.liveness.mu.Unlock()
	if s.liveness.seen == nil || len(s.liveness.seen) > 4096 {
		s.liveness.seen = map[string]probed{}
	}
	s.liveness.seen[id] = b
	return !b.dead
}

// notKnownDead reports false if the client was found dead before.
func (s *store) notKnownDead(id string) bool {
	s.liveness.mu.Lock()
	defer s.liveness.mu.Unlock()
	return !s.liveness.seen[id].dead
}

// probe reports whether a client is dead. When in doubt it is not.
func (s *store) probe(id string) bool {
	p := s.place.Load()
	if p == nil || !validID(id) {
		return false // no id of ours: only its TTL ends it
	}
	fd, st, err := p.clients.open(id, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return true // closed, or found dead before and cleaned
	}
	if err != nil {
		return false
	}
	defer closeFD(fd)
	if st.Mode&syscall.S_IFMT != lifeType {
		return true // it never was a client
	}
	return flock(fd, syscall.LOCK_SH|syscall.LOCK_NB) == nil
}

// validID reports whether a client may have this id: 32 hex digits, and so no path.
func validID(id string) bool {
	for i := 0; i < len(id); i++ {
		if c := id[i]; c < '0' || c > '9' && c < 'a' || c > 'f' {
			return false
		}
	}
	return len(id) == 32
}

// others returns the ids of the clients that have a file, this process's aside.
func (s *store) others() ([]string, error) {
	names, err := s.place.Load().clients.names()
	ids := names[:0]
	for _, name := range names {
		if _, ours := local.Load(name); !ours && validID(name) {
			ids = append(ids, name)
		}
	}
	return ids, err
}

// wake tells a waiter that it was granted the hold.
func (s *store) wake(w waiter) {
	if c, ok := local.Load(w.client); ok {
		c.(*client).wake(hash(w.owner))
		return
	}
	s.wakeClient(w.client, binary.LittleEndian.AppendUint64(nil, hash(w.owner)))
}

// hash is FNV-1a.
func hash(text string) uint64 {
	h := uint64(14695981039346656037)
	for i := 0; i < len(text); i++ {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return h
}
