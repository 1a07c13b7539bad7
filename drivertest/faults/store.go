package faults

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net/url"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
)

// recovery is how long after a fault every waiter must have been served; a waiter that
// has not is stuck. First the hold that was left behind ends, and then all waiters are
// served one after the other, on a machine that may do much else. A store without a queue serves
// them in the order of chance, so the last one may wait for longer.
func (s *scene) recovery(c *holdfast.Client, ttl time.Duration) time.Duration {
	within := 2*opens(c, ttl) + 10*slack
	if !c.Caps().Fair {
		within *= 3
	}
	return within
}

// shortPauses: 64 goroutines with a name each and 64 with one for all, while the
// store stands still again and again for 60 ms. That delays, and does no harm.
func shortPauses(s *scene) {
	clients := []*holdfast.Client{s.client(s.addr), s.client(s.addr), s.client(s.addr), s.client(s.addr)}
	goroutines := cmp.Or(s.Goroutines, 16)
	each, one := s.start(long, goroutines, own, clients...), s.start(long, goroutines, hot, clients...)
	most := stood(func() {
		for range 8 {
			each.served(s.recovery(clients[0], brief))
			s.server.Pause()
			time.Sleep(60 * time.Millisecond)
			s.server.Resume()
		}
		each.served(s.recovery(clients[0], brief))
		one.served(s.recovery(clients[0], brief))
	})
	for _, l := range []*load{each, one} {
		l.finish()
		if lost := l.losses(); len(lost) > 0 && most < clients[0].Caps().PollInterval()/2 {
			s.Errorf("P2: %d leases were lost by pauses much shorter than their TTL, while this process stood still for %v at most: %v",
				len(lost), most, lost)
		}
	}
}

// longPause: the store stands still for twice the TTL.
func longPause(s *scene) {
	clients := []*holdfast.Client{s.client(s.addr), s.client(s.addr), s.client(s.addr)}
	l := s.start(brief, 6, mixed, clients...)
	l.served(s.recovery(clients[0], brief))
	// On a busy machine the first answer may come when the hold is over, and the name opens with its TTL.
	steady := s.acquire(clients[0], "steady", brief, opens(clients[0], brief)+slack, "P7: a free name")
	s.server.Pause()
	time.Sleep(2 * brief)
	if !errors.Is(steady.Err(), holdfast.ErrLost) {
		s.Errorf("P2: a lease that cannot have been renewed says %v", steady.Err())
	}
	s.server.Resume()
	l.served(s.recovery(clients[0], brief))
	l.finish()
}

// restart: the store is killed and starts again with its data, so holds outlive the restart.
func restart(s *scene) {
	clients := []*holdfast.Client{s.client(s.addr), s.client(s.addr), s.client(s.addr)}
	l := s.start(long, 6, mixed, clients...)
	steady := s.acquire(clients[0], "steady", long, slack, "P7: a free name")
	for range 2 {
		l.served(s.recovery(clients[0], brief))
		s.server.Kill()
		s.server.Start()
	}
	l.served(s.recovery(clients[0], brief))
	l.finish()
	s.taken(clients[1], "steady", "P1: a hold did not outlive the restart of a store that keeps its data")
	ctx, cancel := context.WithTimeout(context.Background(), slack)
	defer cancel()
	if err := steady.Renew(ctx); err != nil {
		s.Errorf("P2: a lease did not outlive the restart of a store that keeps its data: %v", err)
	}
}

// taken asserts that a name is held.
func (s *scene) taken(c *holdfast.Client, name, why string) {
	s.Helper()
	lease, err := c.Mutex(name, &holdfast.Options{TTL: brief}).TryAcquire(context.Background())
	if err == nil {
		lease.Release()
	}
	if !errors.Is(err, holdfast.ErrHeld) {
		s.Errorf("%s: %v", why, err)
	}
}

// oneOf starts a load of three clients, one of them behind a proxy. That one has a lease of
// its own too. Then it calls spoil, which injects a fault by the proxy for a while.
func (s *scene) oneOf(ttl time.Duration, spoil func(*chaos.Proxy, *holdfast.Lease)) {
	proxy := chaos.StartProxy(s, s.addr)
	far, near := s.client(proxy.Addr), s.client(s.addr)
	s.Cleanup(proxy.Heal) // before the client is closed, which would wait for the store
	l := s.start(ttl, 6, mixed, far, near, s.client(s.addr))
	steady := s.acquire(far, "steady", ttl, slack, "P7: a free name")
	l.served(s.recovery(near, ttl))
	spoil(proxy, steady)
	proxy.Heal()
	l.served(s.recovery(near, ttl))
	l.finish()
}

// oneCut: connections break and cannot be made, for some time.
func (s *scene) oneCut(during, ttl time.Duration) {
	s.oneOf(ttl, func(p *chaos.Proxy, steady *holdfast.Lease) {
		p.Cut()
		most := stood(func() { time.Sleep(during) })
		switch err := steady.Err(); {
		case during > ttl && !errors.Is(err, holdfast.ErrLost):
			s.Errorf("P2: a lease that cannot have been renewed says %v", err)
		case during < ttl/2 && err != nil && most < ttl/4:
			s.Errorf("P2: a lease of %v was lost by a cut of %v: %v", ttl, during, err)
		}
	})
}

// repliesHeld: requests pass, and their replies come later than the TTL.
func repliesHeld(s *scene) {
	s.oneOf(brief, func(p *chaos.Proxy, steady *holdfast.Lease) {
		p.Hold(chaos.ToClient, "")
		time.Sleep(2 * brief)
		if !errors.Is(steady.Err(), holdfast.ErrLost) {
			s.Errorf("P2: a lease whose renewals were not answered says %v", steady.Err())
		}
	})
}

// requestsHeld: requests come later than the TTL, after they have been given up.
func requestsHeld(s *scene) {
	s.oneOf(brief, func(p *chaos.Proxy, steady *holdfast.Lease) {
		p.Hold(chaos.ToServer, "")
		time.Sleep(2 * brief)
		if !errors.Is(steady.Err(), holdfast.ErrLost) {
			s.Errorf("P2: a lease whose renewals did not arrive says %v", steady.Err())
		}
	})
}

// pushesHeld: requests are answered, and pushes come later than the TTL. Polls
// serve all meanwhile.
func pushesHeld(s *scene) {
	if s.Pushes == "" {
		return
	}
	proxy := chaos.StartProxy(s, s.addr)
	clients := []*holdfast.Client{s.client(proxy.Addr), s.client(proxy.Addr), s.client(proxy.Addr)}
	l := s.start(brief, 3, mixed, clients...)
	l.served(s.recovery(clients[0], brief))
	proxy.Hold(chaos.ToClient, s.Pushes)
	time.Sleep(2 * brief)
	l.served(2 * s.recovery(clients[0], brief))
	proxy.Heal()
	l.served(s.recovery(clients[0], brief))
	l.finish()
}

// slowNetwork: each way takes 20 ms.
func slowNetwork(s *scene) {
	s.oneOf(brief, func(p *chaos.Proxy, _ *holdfast.Lease) {
		p.Delay(chaos.ToServer, 20*time.Millisecond)
		p.Delay(chaos.ToClient, 20*time.Millisecond)
		time.Sleep(2 * brief)
	})
}

// latePush: the message that tells a waiter of its hand-off is held back until the hold
// has expired and another client has the name. The waiter does not ask the store
// meanwhile, so nothing but the grant's Since can tell it that the message is stale.
func latePush(s *scene) {
	if s.Pushes == "" {
		return
	}
	proxy := chaos.StartProxy(s, s.addr)
	open := func(addr string) driver.Driver {
		u, err := url.Parse(s.URL(addr))
		if err != nil {
			s.Fatal(err)
		}
		d, err := driver.Open(context.Background(), u)
		if err != nil {
			s.Fatal(err)
		}
		s.Cleanup(func() { d.Close() })
		return d
	}
	far, near := open(proxy.Addr), open(s.addr)
	ctx := context.Background()
	request := driver.Request{Name: "late", Owner: rand.Text(), TTL: brief, Note: "faults"}
	g, err := near.Try(ctx, request)
	if err != nil {
		s.Fatal(err)
	}
	waits := request
	waits.Owner = rand.Text()
	q, ok := driver.As[driver.Queuer](far)
	if !ok {
		s.Fatal("P10: a store that pushes has no queue")
	}
	if _, err := q.Enqueue(ctx, waits); !errors.Is(err, driver.ErrHeld) {
		s.Fatalf("P1: Enqueue of a held name: %v", err)
	}
	proxy.Hold(chaos.ToClient, s.Pushes)
	if err := near.Release(ctx, []driver.Grant{g})[0]; err != nil {
		s.Fatal(err)
	}
	next := request
	next.Owner = rand.Text()
	s.until("P5: the name that nobody collects opens", opens(s.client(s.addr), brief)+slack, func() bool {
		_, err := near.Try(ctx, next)
		return err == nil
	})
	proxy.Heal()
	wait, cancel := context.WithTimeout(ctx, slack)
	defer cancel()
	late, err := q.Wait(wait, waits)
	if now := driver.HostClock.Now(); err == nil && now < late.Since.Add(late.Valid) {
		s.Errorf("P1: the message of a hand-off came after the hold had expired, and is trusted for %v more",
			late.Since.Add(late.Valid).Sub(now))
	}
}
