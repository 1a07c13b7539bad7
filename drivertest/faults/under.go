package faults

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

// Under calls spoil while clients acquire and release locks, and checks that the promises hold, that every
// client is served before and after, and that a lease of one of them outlives it: the store must be able to
// renew it when spoil has returned, within the TTL. Under is for faults of a store that has several servers;
// clients find them at addr. Of h only URL is needed.
func Under(t testing.TB, h Harness, addr string, ttl time.Duration, spoil func()) {
	s := &scene{TB: t, Harness: h, addr: addr}
	clients := []*holdfast.Client{s.client(addr), s.client(addr), s.client(addr)}
	l := s.start(ttl, 3, mixed, clients...)
	steady := s.acquire(clients[0], "steady", ttl, slack, "P7: a free name")
	l.served(s.recovery(clients[0], ttl))
	spoil()
	// A server that a client is connected to may not know yet what has become of the others.
	for steady.Renew(context.Background()) != nil && steady.Err() == nil {
		time.Sleep(20 * time.Millisecond)
	}
	l.served(s.recovery(clients[0], ttl))
	s.taken(clients[1], "steady", "P1: a name that is held was given again")
	if err := steady.Err(); err != nil {
		t.Errorf("P2: a lease did not outlive what its store outlives: %v", err)
	}
	l.finish()
	steady.Release() // it may be lost
}

// OpenDriver opens a driver of a store that is spoilt meanwhile, for as long as that takes.
func OpenDriver(t testing.TB, u *url.URL) driver.Driver {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		d, err := driver.Open(ctx, u)
		if err == nil {
			return d
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
