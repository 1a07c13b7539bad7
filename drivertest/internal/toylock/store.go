package toylock

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
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

// live reports whether its owner still has it.
func (h *Hold) live(now time.Time) bool { return now.Before(h.Ends) }

// Change is one change of the store, as it is written to the file.
type Change struct {
	ID        string    // of the store, in its first change
	Name      string    // is held, closed or free from now on
	Hold      *Hold     // nil: the name is free
	Tombstone string    // an owner whose requests are refused from now on
	Until     time.Time // when the tombstone expires
}

// Store is the server. Clients call its exported methods.
type Store struct {
	mu         sync.Mutex
	file       *os.File
	id         string
	last       driver.Token
	holds      map[string]*Hold
	tombstones map[string]time.Time // by owner: when each expires
}

// Serve serves the store in a file to all clients that connect.
func Serve(l net.Listener, file string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	s := &Store{file: f, holds: map[string]*Hold{}, tombstones: map[string]time.Time{}}
	var changes []Change
	for d := json.NewDecoder(f); err == nil; err = d.Decode(&changes) {
		for _, c := range changes {
			s.apply(c)
		}
		changes = nil
	}
	if err != io.EOF {
		return err
	}
	if s.id == "" {
		err = s.change(Change{ID: rand.Text()})
	} else {
		err = nil
	}
	server := rpc.NewServer()
	if err := errors.Join(err, server.RegisterName("Store", s)); err != nil {
		return err
	}
	server.Accept(l)
	return nil
}

// change writes changes to the file, and then makes them.
func (s *Store) change(changes ...Change) error {
	if err := json.NewEncoder(s.file).Encode(changes); err != nil {
		return err
	}
	for _, c := range changes {
		s.apply(c)
	}
	return nil
}

func (s *Store) apply(c Change) {
	switch {
	case c.ID != "":
		s.id = c.ID
	case c.Tombstone != "":
		s.tombstones[c.Tombstone] = c.Until
	case c.Hold == nil:
		delete(s.holds, c.Name)
	default:
		s.holds[c.Name] = c.Hold
		s.last = max(s.last, c.Hold.Token)
	}
}

// settle returns the hold that keeps a name from others, or nil if the name is free.
func (s *Store) settle(name string, now time.Time) *Hold {
	h := s.holds[name]
	if h != nil && !now.Before(h.Ends) && !now.Before(h.Closed) {
		delete(s.holds, name)
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
	if _, withdrawn := s.tombstones[r.Owner]; withdrawn {
		reply.Withdrawn = true
		return nil
	}
	h := s.settle(r.Name, now)
	if h != nil && (h.Owner != r.Owner || !h.live(now)) {
		reply.Held, reply.Note, reply.Token, reply.ExpiresIn = true, h.Note, h.Token, h.Closed.Sub(now)
		return nil
	}
	if h == nil {
		h = &Hold{Request: r, Token: s.last + 1, Taken: now}
	}
	reply.Token = h.Token
	return s.change(Change{Name: r.Name, Hold: h.started(now)})
}

// Renew starts the TTL of each hold again if its owner still has it.
func (s *Store) Renew(grants []driver.Grant, renewed *[]bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var changes []Change
	for _, g := range grants {
		h := s.settle(g.Name, now)
		ok := h != nil && h.Owner == g.Owner && h.live(now)
		if ok {
			changes = append(changes, Change{Name: g.Name, Hold: h.started(now)})
		}
		*renewed = append(*renewed, ok)
	}
	return s.change(changes...)
}

// tombstoneTTL is how long a tombstone lasts: no request can be under way for so long.
const tombstoneTTL = time.Minute

// Release frees each hold if its owner still has it, and withdraws requests.
func (s *Store) Release(grants []driver.Grant, held *[]bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for owner, until := range s.tombstones {
		if now.After(until) {
			delete(s.tombstones, owner)
		}
	}
	var changes []Change
	for _, g := range grants {
		if g.Token == 0 || g.Stray {
			changes = append(changes, Change{Tombstone: g.Owner, Until: now.Add(tombstoneTTL)})
		}
		h := s.settle(g.Name, now)
		ok := h != nil && h.Owner == g.Owner && h.live(now)
		if ok {
			free := Change{Name: g.Name}
			if least := h.Taken.Add(g.MinHold); g.MinHold > 0 && now.Before(least) {
				closed := *h
				closed.Ends, closed.Closed = now, least
				free.Hold = &closed
			}
			changes = append(changes, free)
		}
		*held = append(*held, ok)
	}
	return s.change(changes...)
}

// started returns a hold whose TTL starts now. If its holder vanishes, the name stays
// closed for the lock-delay after that, and until the minimum hold is over.
func (h Hold) started(now time.Time) *Hold {
	h.Ends = now.Add(h.TTL)
	h.Closed = h.Ends.Add(h.LockDelay)
	if least := h.Taken.Add(h.MinHold); h.Closed.Before(least) {
		h.Closed = least
	}
	return &h
}

// Hello tells a new client the store's id.
func (s *Store) Hello(_ struct{}, id *string) error {
	*id = s.id
	return nil
}
