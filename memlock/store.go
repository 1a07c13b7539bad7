// Package memlock keeps locks in the memory of one process.
//
// It is the reference: it has every capability, and reads like the
// specification of what a store has to do. Use it in tests, in examples, and
// in programs that are one process today.
//
//	locks, err := holdfast.Open(ctx, "mem://orders")
//
// opens a client of the store "orders" of this process, which is made at the
// first use and lasts as long as the process.
package memlock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

func init() { driver.Register("mem", open) }

// Options configure a store. The zero value is right for almost everybody.
type Options struct {
	Clock driver.Clock  // the store's time; nil: driver.HostClock
	Poll  time.Duration // Caps.Poll of the store's clients; 0: driver.DefaultPoll
}

// Store is a set of named locks. Its clients are as separate as the clients of
// a server. Safe for concurrent use.
type Store struct {
	clock driver.Clock
	caps  driver.Caps

	mu      sync.Mutex
	ahead   time.Duration // how far Advance has moved the store's time
	token   driver.Token  // the last one given: one sequence for all names needs no record of idle names (P9)
	records map[string]*record
	gone    map[string]farewell
	sweep   int // clean gone when it has grown to this
	clients map[*client]struct{}
}

// farewell is what is remembered of an owner whose hold was broken, or whose
// request was withdrawn before it arrived.
type farewell struct {
	err   error // ErrBroken, or nil for a withdrawn request
	until driver.Instant
}

var stores atomic.Int64

// NewStore returns an empty store. Nil options are fine.
func NewStore(o *Options) *Store {
	if o == nil {
		o = &Options{}
	}
	s := &Store{
		clock:   o.Clock,
		records: map[string]*record{},
		gone:    map[string]farewell{},
		clients: map[*client]struct{}{},
		caps: driver.Caps{
			Store:   fmt.Sprintf("mem:#%d", stores.Add(1)),
			Ops:     driver.OpQueue | driver.OpNotify | driver.OpInspect | driver.OpBreak | driver.OpDowngrade,
			Fencing: true, Shared: true, Slots: true, Fair: true,
			MinTTL: time.Millisecond, Poll: o.Poll,
			Guarantees: guarantees,
		},
	}
	if s.clock == nil {
		s.clock = driver.HostClock
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
	}
}

// now is the store's time. It may run ahead of the clients' clocks.
func (s *Store) now() driver.Instant { return s.clock.Now().Add(s.ahead) }

// settled returns the record of a name, settled, or nil if there is none.
func (s *Store) settled(name string, now driver.Instant) *record {
	r := s.records[name]
	if r != nil {
		r.settle(now, s.caps.PollInterval(), s.nextToken)
	}
	return r
}

// tidy forgets the record of a name that nobody uses (P9).
func (s *Store) tidy(name string) {
	if r := s.records[name]; r != nil && r.idle() {
		delete(s.records, name)
	}
}

func (s *Store) nextToken() driver.Token {
	s.token++
	return s.token
}

// say remembers an owner's farewell.
func (s *Store) say(owner string, err error, now, until driver.Instant) {
	if len(s.gone) >= s.sweep {
		maps.DeleteFunc(s.gone, func(_ string, f farewell) bool { return now >= f.until })
		s.sweep = 2*len(s.gone) + 64
	}
	s.gone[owner] = farewell{err, until}
}

// farewell returns what is remembered of an owner.
func (s *Store) farewell(owner string, now driver.Instant) (farewell, bool) {
	f, ok := s.gone[owner]
	return f, ok && now < f.until
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
		s.caps.Store = "mem://" + name
		if named.m == nil {
			named.m = map[string]*Store{}
		}
		named.m[name] = s
	}
	return s.Client(), nil
}

// names returns the names in use that begin with prefix, sorted.
func (s *Store) names(prefix string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.records)), func(name string) bool {
		return !strings.HasPrefix(name, prefix)
	})
}
