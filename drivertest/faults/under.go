package faults

import (
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
)

// Under calls spoil while clients acquire and release locks, and checks that the promises hold
// and that every client is served before and after. Spoil gets a lease of one of the clients,
// on a name that no other uses. Under is for faults of a store that has several servers;
// clients find them at addr. Of h only URL is needed.
func Under(t testing.TB, h Harness, addr string, ttl time.Duration, spoil func(steady *holdfast.Lease)) {
	s := &scene{TB: t, Harness: h, addr: addr}
	clients := []*holdfast.Client{s.client(addr), s.client(addr), s.client(addr)}
	l := s.start(ttl, 3, mixed, clients...)
	steady := s.acquire(clients[0], "steady", ttl, slack, "P7: a free name")
	l.served(s.recovery(clients[0], ttl))
	spoil(steady)
	l.served(s.recovery(clients[0], ttl))
	l.finish()
	steady.Release() // spoil may have made it fail by right
}
