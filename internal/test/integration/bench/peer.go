package bench

import (
	"context"
	"fmt"
)

// Locker is one client of one peer. Its methods are safe for concurrent use.
type Locker interface {
	// Lock waits until it holds name, and returns the function that releases it.
	Lock(ctx context.Context, name string) (unlock func() error, err error)
	Close() error
}

// holder is a Locker that renews its holds by itself.
type holder interface {
	// Hold takes name, and returns a function that reports whether the hold is lost.
	Hold(ctx context.Context, name string) (lost func() bool, err error)
}

// peer is one way to lock on one store.
type peer struct {
	name string
	open func(ctx context.Context, addr string) (Locker, error)
	// skips are the workloads that the peer cannot run.
	skips []string
	// only is the one workload that the peer runs. "": all but skips.
	only string
	// alone is a peer of which one worker is measured, whatever the crowd: it has no queue.
	alone bool
}

// store is one kind of server and the peers that are measured on it.
type store struct {
	name  string
	floor string // the peer whose pairs are the floor
	bare  string // the peer whose hand-overs are the floor; "": there is none
	ours  string // the peer that is Holdfast
	peers []peer
	url   func(addr string) string // of Holdfast, for crowds
	// work asks the server at addr.
	work func(ctx context.Context, addr string) (served, error)
}

// served is what a server has done so far, and the memory and connections that it has now.
type served struct {
	commands, scripts int64 // commands of any kind, and calls of scripts
	memory            int64 // bytes
	connections       int64 // of clients, but for the one that asks; where they are counted
}

// notPairs are all workloads but pairs.
var notPairs = []string{"hot", "hot4", "clients2", "clients16", "handoff", "wait", "hold"}

// stores are all stores, by name.
var stores = map[string]*store{}

func (s *store) peer(name string) (peer, error) {
	for _, p := range s.peers {
		if p.name == name {
			return p, nil
		}
	}
	return peer{}, fmt.Errorf("store %s has no peer %q", s.name, name)
}
