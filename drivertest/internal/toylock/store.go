package toylock

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/rpc"
	"os"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Hold is the store's record of a name that is held or closed.
type Hold struct {
	driver.Request
	Token  driver.Token
	Taken  time.Time
	Ends   time.Time // of its TTL, by the store's clock
	Closed time.Time // the name is closed until then, held or not
}

// of reports whether an owner has the hold.
func (h *Hold) of(owner string, now time.Time) bool {
	return h != nil && h.Owner == owner && now.Before(h.Ends)
}

// start starts the TTL. If the holder vanishes, the name stays closed for the lock-delay after that, and until the
// minimum hold is over.
func (h *Hold) start(now time.Time) {
	h.Ends = now.Add(h.TTL)
	h.Closed = h.Ends.Add(h.LockDelay)
	if least := h.Taken.Add(h.MinHold); h.Closed.Before(least) {
		h.Closed = least
	}
}

// Store is the server. Clients call its exported methods. Its exported fields are in the file.
type Store struct {
	mu   sync.Mutex
	file string

	ID         string
	Last       driver.Token
	Holds      map[string]*Hold
	Tombstones map[string]time.Time // by owner: when each expires
}

// Serve serves the store in a file to all clients that connect.
func Serve(l net.Listener, file string) error {
	s := &Store{file: file, ID: rand.Text(), Holds: map[string]*Hold{}, Tombstones: map[string]time.Time{}}
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, s)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = s.save()
	}
	server := rpc.NewServer()
	if err := errors.Join(err, server.RegisterName("Store", s)); err != nil {
		return err
	}
	server.Accept(l)
	return nil
}

// save replaces the file, before a change is acknowledged.
func (s *Store) save() error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(s.file+".new", data, 0o600), os.Rename(s.file+".new", s.file))
}

// settle returns the hold that keeps a name from others, or nil if the name is free.
func (s *Store) settle(name string, now time.Time) *Hold {
	h := s.Holds[name]
	if h != nil && !now.Before(h.Ends) && !now.Before(h.Closed) {
		delete(s.Holds, name)
		return nil
	}
	return h
}

// TakeReply is the answer to Take.
type TakeReply struct {
	Token     driver.Token
	Withdrawn bool // the owner has a tombstone
	Held      bool
	Note      string
	ExpiresIn time.Duration
}

// Take takes a name if it is free, or if this owner has it already.
func (s *Store) Take(r driver.Request, reply *TakeReply) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if _, reply.Withdrawn = s.Tombstones[r.Owner]; reply.Withdrawn {
		return nil
	}
	h := s.settle(r.Name, now)
	if h != nil && !h.of(r.Owner, now) {
		*reply = TakeReply{Held: true, Note: h.Note, Token: h.Token, ExpiresIn: h.Closed.Sub(now)}
		return nil
	}
	if h == nil {
		s.Last++
		h = &Hold{Request: r, Token: s.Last, Taken: now}
		s.Holds[r.Name] = h
	}
	h.start(now)
	reply.Token = h.Token
	return s.save()
}

// Renew starts the TTL of each hold again if its owner still has it.
func (s *Store) Renew(grants []driver.Grant, renewed *[]bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, g := range grants {
		h := s.settle(g.Name, now)
		ok := h.of(g.Owner, now)
		if ok {
			h.start(now)
		}
		*renewed = append(*renewed, ok)
	}
	return s.save()
}

// tombstoneTTL is how long a tombstone lasts: no request can be under way for so long.
const tombstoneTTL = time.Minute

// Release frees each hold if its owner still has it, and withdraws requests.
func (s *Store) Release(grants []driver.Grant, held *[]bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for owner, until := range s.Tombstones {
		if now.After(until) {
			delete(s.Tombstones, owner)
		}
	}
	for _, g := range grants {
		if g.Token == 0 || g.Stray {
			s.Tombstones[g.Owner] = now.Add(tombstoneTTL)
		}
		h := s.settle(g.Name, now)
		ok := h.of(g.Owner, now)
		if ok {
			h.Ends, h.Closed = now, now
			if g.MinHold > 0 {
				h.Closed = h.Taken.Add(g.MinHold)
			}
			s.settle(g.Name, now)
		}
		*held = append(*held, ok)
	}
	return s.save()
}

// Hello tells a new client the store's id.
func (s *Store) Hello(_ struct{}, id *string) error {
	*id = s.ID
	return nil
}
