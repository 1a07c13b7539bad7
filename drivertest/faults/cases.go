package faults

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
)

var cases = map[string]func(*scene){
	"short pauses of the store": shortPauses,
	"a long pause of the store": func(s *scene) {
		s.oneOf(brief, func(_ *chaos.Proxy, steady *holdfast.Lease) {
			s.server.Pause()
			defer s.server.Resume()
			s.loses(steady, 2*brief)
		})
	},
	// Holds outlive the restart of a store that keeps its data.
	"the store is restarted": func(s *scene) {
		c := s.client(s.addr)
		steady := s.spoilt(long, func(l *load, _ *holdfast.Lease) {
			for range 2 {
				s.server.Kill()
				s.server.Start()
				l.served(s.recovery(c, long))
			}
		}, c, s.client(s.addr), s.client(s.addr))
		ctx, cancel := context.WithTimeout(context.Background(), slack)
		defer cancel()
		if _, err := s.client(s.addr).Mutex("steady", nil).TryAcquire(ctx); !errors.Is(err, holdfast.ErrHeld) {
			s.Errorf("P1: a hold did not outlive the restart of a store that keeps its data: %v", err)
		}
		if err := steady.Renew(ctx); err != nil {
			s.Errorf("P2: a lease did not outlive the restart of a store that keeps its data: %v", err)
		}
	},
	"cut for less than the TTL": func(s *scene) {
		s.oneOf(4*brief, func(p *chaos.Proxy, steady *holdfast.Lease) {
			p.Cut()
			most := stood(func() { time.Sleep(brief) })
			if err := steady.Err(); err != nil && most < brief {
				s.Errorf("P2: a lease of %v was lost by a cut of %v: %v", 4*brief, brief, err)
			}
		})
	},
	"cut for more than the TTL": func(s *scene) {
		s.oneOf(brief, func(p *chaos.Proxy, steady *holdfast.Lease) { p.Cut(); s.loses(steady, 2*brief) })
	},
	"replies are held back": func(s *scene) {
		s.oneOf(brief, func(p *chaos.Proxy, steady *holdfast.Lease) { p.HoldReplies(); s.loses(steady, 2*brief) })
	},
	"requests are held back": func(s *scene) {
		s.oneOf(brief, func(p *chaos.Proxy, steady *holdfast.Lease) { p.HoldRequests(); s.loses(steady, 2*brief) })
	},
	"pushes are held back": pushesHeld,

	"the first waiter is killed":   func(s *scene) { s.waiterGone(true) },
	"the first waiter is stopped":  func(s *scene) { s.waiterGone(false) },
	"the holder is stopped":        holderStopped,
	"a holder and waiters, killed": allKilled,
}

// recovery is how long after a fault every waiter must have been served; a waiter that has not is stuck. First the
// hold that was left behind ends, and then all waiters are served, on a machine that may do much else. A store
// without a queue serves them in the order of chance.
func (s *scene) recovery(c *holdfast.Client, ttl time.Duration) time.Duration {
	within := 2*opens(c, ttl) + 10*slack
	if !c.Caps().Fair {
		within *= 3
	}
	return within
}

// spoilt spoils something while clients acquire and release locks, and checks that all are served before and after.
// The first has a lease of its own, on a name that no other uses.
func (s *scene) spoilt(ttl time.Duration, spoil func(*load, *holdfast.Lease), clients ...*holdfast.Client) *holdfast.Lease {
	l := s.start(ttl, 4, mixed, clients...)
	// On a busy machine the first answer may come when the hold is over, and the name opens with its TTL.
	steady := s.acquire(clients[0], "steady", ttl, opens(clients[0], ttl)+slack, "P7: a free name")
	l.served(s.recovery(clients[0], ttl))
	spoil(l, steady)
	l.served(s.recovery(clients[0], ttl))
	l.finish()
	return steady
}

// Under calls spoil while clients acquire and release locks, and checks that the promises hold, that every client is
// served before and after, and that a lease of one of them outlives it: the store must be able to renew it when spoil
// has returned, within the TTL. Under is for faults of a store that has several servers; clients find them at addr. Of
// h only URL is needed.
func Under(t testing.TB, h Harness, addr string, ttl time.Duration, spoil func()) {
	s := &scene{TB: t, Harness: h, addr: addr}
	other := s.client(addr)
	steady := s.spoilt(ttl, func(_ *load, steady *holdfast.Lease) {
		spoil()
		// A server that a client is connected to may not know yet what has become of the others.
		for steady.Renew(context.Background()) != nil && steady.Err() == nil {
			time.Sleep(20 * time.Millisecond)
		}
	}, s.client(addr), other, s.client(addr))
	s.taken(other, "steady", "P1: a name that is held was given again")
	if err := steady.Err(); err != nil {
		t.Errorf("P2: a lease did not outlive what its store outlives: %v", err)
	}
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

// oneOf spoils the proxy before one of three clients, or the store.
func (s *scene) oneOf(ttl time.Duration, spoil func(*chaos.Proxy, *holdfast.Lease)) {
	proxy := chaos.StartProxy(s, s.addr)
	far := s.client(proxy.Addr)
	s.Cleanup(proxy.Heal) // before the client is closed, which would wait for the store
	s.spoilt(ttl, func(_ *load, steady *holdfast.Lease) {
		spoil(proxy, steady)
		proxy.Heal()
	}, far, s.client(s.addr), s.client(s.addr))
}

// loses asserts that a lease is lost in time by a fault that lasts for so long.
func (s *scene) loses(lease *holdfast.Lease, during time.Duration) {
	s.Helper()
	time.Sleep(during)
	if !errors.Is(lease.Err(), holdfast.ErrLost) {
		s.Errorf("P2: a lease that cannot have been renewed says %v", lease.Err())
	}
}

// shortPauses: 64 goroutines with a name each and 64 with one for all, while the store stands still again and again
// for 60 ms. That delays, and does no harm.
func shortPauses(s *scene) {
	clients := []*holdfast.Client{s.client(s.addr), s.client(s.addr), s.client(s.addr), s.client(s.addr)}
	goroutines, recovery := cmp.Or(s.Goroutines, 16), s.recovery(clients[0], brief)
	each, one := s.start(long, goroutines, own, clients...), s.start(long, goroutines, hot, clients...)
	most := stood(func() {
		for range 8 {
			each.served(recovery)
			s.server.Pause()
			time.Sleep(60 * time.Millisecond)
			s.server.Resume()
		}
		each.served(recovery)
		one.served(recovery)
	})
	for _, l := range []*load{each, one} {
		l.finish()
		if l.lost > 0 && most < clients[0].Caps().PollInterval()/2 {
			s.Errorf("P2: %d leases were lost by pauses much shorter than their TTL, while this process stood still for %v at most", l.lost, most)
		}
	}
}

// pushesHeld: requests are answered, and pushes come later than the TTL. Polls serve all until then.
func pushesHeld(s *scene) {
	if s.Pushes == "" {
		return
	}
	proxy := chaos.StartProxy(s, s.addr)
	c := s.client(proxy.Addr)
	s.spoilt(brief, func(l *load, _ *holdfast.Lease) {
		proxy.Hold(chaos.ToClient, s.Pushes)
		time.Sleep(2 * brief)
		l.served(2 * s.recovery(c, brief))
		proxy.Heal()
	}, c, s.client(proxy.Addr), s.client(proxy.Addr))
}

// watched watches a lease for some time, and releases it.
func watched(lease *holdfast.Lease, long time.Duration) Hold {
	stop := make(chan struct{})
	time.AfterFunc(long, func() { close(stop) })
	h := Watch(lease, stop, nil)
	h.Who = "the test"
	lease.Release()
	return h
}

// waiterGone: a waiter's process is killed or stopped. It delays a live one behind it by two polls at most, by less
// if the store notices that the process is dead, and is served when it goes on.
func (s *scene) waiterGone(killed bool) {
	c := s.client(s.addr)
	lease := s.acquire(c, "x", long, slack, "P7: a free name")
	gone := s.child(long)
	s.waiting(c, "x", 1)
	alive := s.child(long)
	s.waiting(c, "x", 2)
	if killed {
		gone.Kill()
	} else {
		gone.Stop()
	}
	start := driver.HostClock.Now()
	holds := []Hold{watched(lease, 0)}
	alive.hasIt(2*c.Caps().PollInterval()+c.Caps().Guarantees.Lateness+slack, "P7: a waiter behind one that is gone")
	took := driver.HostClock.Now().Sub(start)
	most := 2 * c.Caps().PollInterval()
	if s.Unnoticed {
		most += slack
	}
	if killed && c.Caps().Fair && took >= most {
		s.Errorf("P7: a dead waiter delayed a live one by %v, no less than %v", took, most)
	}
	if !killed {
		gone.Signal(syscall.SIGCONT)
		time.Sleep(brief / 10)
	}
	holds = append(holds, alive.gives())
	if !killed {
		gone.hasIt(3*c.Caps().PollInterval()+slack, "P7: a waiter that was stopped")
		holds = append(holds, gone.gives())
	}
	s.check(holds)
}

// holderStopped: a process is stopped for longer than its TTL, and goes on. Its first poll finds the lease lost, and
// before it was stopped it had found the lease valid for no longer than until the next hold began. Its token is
// lower, so that a guard refuses it if it acts without a check of its lease.
func holderStopped(s *scene) {
	c, holder := s.client(s.addr), s.child(brief)
	holder.hasIt(3*slack, "P7: a free name")
	holder.Stop()
	lease := s.acquire(c, "x", brief, opens(c, brief)+slack, "P5: the name of a holder that is stopped")
	held := make(chan Hold)
	go func() { held <- watched(lease, brief/5) }()
	time.Sleep(brief / 10)
	holder.Signal(syscall.SIGCONT)
	theirs := holder.gives()
	ours := <-held
	if theirs.Lost == "" {
		s.Errorf("P2: a holder that was stopped for longer than its TTL went on: %+v", theirs)
	}
	s.check([]Hold{theirs, ours})
}

// allKilled: a holder and three waiters are killed. A waiter that comes later is served when the holder's TTL is
// over.
func allKilled(s *scene) {
	c := s.client(s.addr)
	const ttl = 4 * brief // or the holder may lose it before the others have come
	all := []child{s.child(ttl)}
	all[0].hasIt(3*slack, "P7: a free name")
	for i := range 3 {
		all = append(all, s.child(ttl))
		s.waiting(c, "x", i+1)
	}
	for _, child := range all {
		child.Kill()
	}
	s.acquire(c, "x", brief, opens(c, ttl)+2*c.Caps().PollInterval()+slack, "P5: behind a holder and waiters that are all dead")
}
