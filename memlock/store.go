// Package memlock keeps locks in the memory of one process.
//
// It is the reference: it has every capability and nothing but what a store has
// to do. The steps themselves are package internal/record. Use it in tests, in examples, and
// in programs that are one process today.
//
//	locks, err := holdfast.Open(ctx, "mem://orders")
//
// opens a client of the store "orders" of this process, which is made at the
// first use and lasts as long as the process.
package memlock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/record"
)

func init() { driver.Register("mem", open) }

// Options configure a store. The zero value is right for almost everybody.
type Options struct {
	Clock driver.Clock  // the store's time; nil: driver.HostClock
	Poll  time.Duration // Caps.Poll of the store's clients; 0: driver.DefaultPoll

	// TokenBlock is Caps.TokenBlock of the store's clients. 0, the default, is as
	// good for use, because the store is in the process itself; others are for tests.
	TokenBlock int
}

// Store is a set of named locks. Its clients are as separate as the clients of
// a server. Safe for concurrent use.
type Store struct {
	clock driver.Clock
	caps  driver.Caps

	mu         sync.Mutex
	ahead      time.Duration // how far Advance has moved the store's time
	token      driver.Token  // the last one given: one sequence for all names needs no record of idle names (P9)
	records    map[string]*entry
	tombstones record.Tombstones
	rules      record.Rules
	clients    map[*client]struct{}
	watches    map[string]map[chan struct{}]struct{} // by name
}

// entry is the record of one name.
type entry struct {
	record.Record
	first [1]record.Hold // where Holds begins, to spare an allocation
}

var stores atomic.Int64

// process tells the stores of this process from those of others, which are not
// the same whatever they are called.
var process = rand.Text()[:8]

// NewStore returns an empty store. Nil options are fine.
func NewStore(o *Options) *Store {
	if o == nil {
		o = &Options{}
	}
	s := &Store{
		clock:   o.Clock,
		records: map[string]*entry{},
		clients: map[*client]struct{}{},
		watches: map[string]map[chan struct{}]struct{}{},
		caps: driver.Caps{
			Store:   fmt.Sprintf("mem:%s#%d", process, stores.Add(1)),
			Fencing: true, Shared: true, Slots: true, Fair: true,
			MinTTL: time.Millisecond, Poll: o.Poll, TokenBlock: o.TokenBlock,
			Guarantees: guarantees,
		},
	}
	if s.clock == nil {
		s.clock = driver.HostClock
	}
	s.rules = record.Rules{
		Poll:    s.caps.PollInterval(),
		Last:    &s.token,
		Granted: func(p *record.Place) { p.Wake <- struct{}{} },
	}
	return s
}

// Client returns a new client of the store.
func (s *Store) Client() driver.Driver {
	c := &client{store: s, losses: make(chan driver.Loss, 16), closed: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients[c] = struct{}{}
	return c
}

// Advance lets the store's time pass, for tests: holds end by it as if the
// clock had run on, and whoever waits behind them is granted.
func (s *Store) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead += d
	now := s.now()
	for name := range s.records {
		s.settled(name, now)
		s.tidy(name)
		s.hint(name)
	}
}

// now is the store's time. It may run ahead of the clients' clocks.
func (s *Store) now() driver.Instant { return s.clock.Now().Add(s.ahead) }

// settled returns the record of a name, settled, or nil if there is none.
func (s *Store) settled(name string, now driver.Instant) *entry {
	r := s.records[name]
	if r != nil {
		r.Settle(now, &s.rules)
	}
	return r
}

// tidy forgets the record of a name that nobody uses (P9).
func (s *Store) tidy(name string) {
	if r := s.records[name]; r != nil && r.Idle() {
		delete(s.records, name)
	}
}

// named are the stores of mem:// URLs.
var named struct {
	sync.Mutex
	m map[string]*Store
}

func open(_ context.Context, u *url.URL) (driver.Driver, error) {
	if _, err := driver.Params(u, false); err != nil {
		return nil, err
	}
	if u.User != nil || u.Opaque != "" || u.Fragment != "" {
		return nil, errors.New("store URL has more than a name: it looks like mem://name")
	}
	name := strings.Trim(u.Host+u.Path, "/")
	named.Lock()
	defer named.Unlock()
	s := named.m[name]
	if s == nil {
		s = NewStore(nil)
		s.caps.Store = "mem://" + name + "#" + process
		if named.m == nil {
			named.m = map[string]*Store{}
		}
		named.m[name] = s
	}
	return s.Client(), nil
}
