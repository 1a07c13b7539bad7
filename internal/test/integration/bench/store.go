package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastlock/holdfast"
)

// ttl is how long a hold lasts unless it is renewed, for all peers.
const ttl = 30 * time.Second

// owner is what the floors write as the owner of a lock.
const owner = "an owner of 26 characters."

// locker is one client of one peer: it waits until it holds name. It is safe for concurrent use.
type locker func(ctx context.Context, name string) (hold, error)

// hold is a name that is held.
type hold struct {
	release func() error
	lost    func() bool // whether the hold is lost; nil: it is not one of Holdfast
}

// kind is what workers do with a lock.
type kind int

const (
	pairs kind = 1 << iota // each takes and releases a name of its own
	hot                    // all want one name, again and again, with one client in each process
	crowd                  // the same, with a client for each worker
	wait                   // all wait for one name that is held, then each gets it once
	keep                   // Holdfast holds names and renews them
	all   = pairs | hot | crowd | wait
)

// peer is one way to lock on one store.
type peer struct {
	name string
	can  kind // the workloads that the peer can run
	most int  // the greatest crowd that it can serve; 0: any
	open func(ctx context.Context, addr string) (locker, error)
}

// store is one kind of server and the peers that are measured on it.
type store struct {
	name, title string
	floor       string                   // the peer whose pairs are the floor; "": there is none
	url         func(addr string) string // of Holdfast
	peers       []peer                   // but for Holdfast
	// work asks the server at addr what it has done. nil: nobody counts that.
	work func(ctx context.Context, addr string) (served, error)
}

// served is what a server has done so far: commands of any kind, and of them calls of scripts.
type served struct{ commands, scripts int64 }

// oursName is the name of the peer that is Holdfast.
const oursName = "holdfast"

// stores are all stores, in the order of the documentation.
var stores = []*store{&redisStore, &etcdStore, &postgresStore, &mariaDBStore, &mySQLStore, &sqliteStore, &filesStore, &cellStore}

func storeOf(name string) *store {
	i := slices.IndexFunc(stores, func(s *store) bool { return s.name == name })
	if i < 0 {
		return nil
	}
	return stores[i]
}

// all returns the peers, Holdfast behind the floor.
func (s *store) all() []peer {
	at := slices.IndexFunc(s.peers, func(p peer) bool { return p.name == s.floor }) + 1
	return slices.Insert(slices.Clone(s.peers), at, peer{name: oursName, can: all, open: func(ctx context.Context, addr string) (locker, error) {
		return openHoldfast(ctx, s.url(addr))
	}})
}

func (s *store) open(ctx context.Context, name, addr string) (locker, error) {
	for _, p := range s.all() {
		if p.name == name {
			return p.open(ctx, addr)
		}
	}
	return nil, fmt.Errorf("store %s has no peer %q", s.name, name)
}

func openHoldfast(ctx context.Context, url string) (locker, error) {
	client, err := holdfast.Open(ctx, url)
	return ours(client), err
}

// ours locks by a client of Holdfast.
func ours(client *holdfast.Client) locker {
	return func(ctx context.Context, name string) (hold, error) {
		lease, err := client.Mutex(name, nil).Acquire(ctx)
		if err != nil {
			return hold{}, err
		}
		return hold{lease.Release, func() bool { return lease.Err() != nil }}, nil
	}
}
