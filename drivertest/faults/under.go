package faults

import (
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
)

// Under has clients take and release locks all the time, calls spoil while they
// do, with a lease of one of them that nobody else wants, and checks that the
// promises hold and that everybody is served before and after. It is for what
// happens to a store of several servers, of which addr is where clients find
// them; h needs a URL only.
func Under(t testing.TB, h Harness, addr string, ttl time.Duration, spoil func(steady *holdfast.Lease)) {
	s := &scene{TB: t, Harness: h, addr: addr}
	clients := []*holdfast.Client{s.client(addr), s.client(addr), s.client(addr)}
	l := s.start(ttl, 3, mixed, clients...)
	steady := s.acquire(clients[0], "steady", ttl, slack, "P7: a free name")
	l.served(s.recovery(clients[0], ttl))
	spoil(steady)
	l.served(s.recovery(clients[0], ttl))
	l.finish()
	steady.Release() // what it returns is the caller's to judge
}
