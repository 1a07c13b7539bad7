package faults

import (
	"errors"
	"syscall"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/fence"
)

// watch watches a lease until stop is closed, and releases it.
func watch(lease *holdfast.Lease, stop <-chan struct{}) Hold {
	h := Watch(lease, stop, nil)
	h.Who = "the test"
	lease.Release()
	return h
}

// soon returns a channel that is closed after a moment.
func soon() <-chan struct{} {
	c := make(chan struct{})
	time.AfterFunc(20*time.Millisecond, func() { close(c) })
	return c
}

// holderKilled: a dead holder's name opens, and not before its TTL is over.
func holderKilled(s *scene) {
	c, holder := s.client(s.addr), s.child()
	holder.says("take x %v", brief)
	holder.hasIt(slack, "P7: a free name")
	taken := driver.HostClock.Now()
	holder.kill()
	lease := s.acquire(c, "x", brief, opens(c, brief)+slack, "P5: the name of a dead holder")
	h := watch(lease, soon())
	if caps := c.Caps(); caps.Guarantees.Faults[driver.ClientCrash].Exclusion == driver.Keeps && h.From < taken {
		s.Errorf("P1: %v began before the hold of the holder that was killed had ended", h)
	}
}

// waiterKilled: there are a holder, two waiters in other processes and one in this. One of
// the other processes is killed. The store notices, and skips its place. Suppose that the name
// were handed to the dead waiter: then the next would get it only after two polls.
func (s *scene) waiterKilled(which int) {
	c, holder := s.client(s.addr), s.client(s.addr)
	lease := s.acquire(holder, "x", long, slack, "P7: a free name")
	waiters := []*child{s.child(), s.child()}
	for i, w := range waiters {
		w.says("take x %v", long)
		s.waiting(c, "x", i+1)
	}
	last := make(chan Hold)
	go func() {
		lease, err := c.Mutex("x", &holdfast.Options{TTL: long}).Acquire(s.Context())
		if err != nil {
			s.Error(err)
			close(last)
			return
		}
		last <- watch(lease, soon())
	}()
	s.waiting(holder, "x", 3)
	waiters[which].kill()
	alive := waiters[1-which]

	stop := make(chan struct{})
	close(stop)
	start := driver.HostClock.Now()
	holds := []Hold{watch(lease, stop)}
	alive.hasIt(slack+opens(c, long), "P7: the live waiter")
	took := driver.HostClock.Now().Sub(start)
	begun := driver.HostClock.Now()
	holds = append(holds, alive.gives(), <-last)
	took += holds[2].From.Sub(begun)
	// Without a queue both live waiters poll, and a dead one delays neither.
	if at := c.Caps().PollInterval(); c.Caps().Fair && took >= 2*at {
		s.Errorf("P7: a dead waiter delayed two live ones by %v, which is no less than two polls", took)
	}
	s.check(holds)
}

// holderStopped: a process is stopped for longer than its TTL, and goes on. Its first poll
// finds the lease lost, and before it was stopped it had found the lease valid for no longer
// than until the next hold began.
func holderStopped(s *scene) {
	c, holder := s.client(s.addr), s.child()
	holder.says("take x %v", brief)
	holder.hasIt(slack, "P7: a free name")
	holder.stop()
	lease := s.acquire(c, "x", brief, opens(c, brief)+slack, "P5: the name of a holder that is stopped")
	stop, held := make(chan struct{}), make(chan Hold)
	go func() { held <- watch(lease, stop) }()
	time.Sleep(brief / 10)
	holder.signal(syscall.SIGCONT)
	theirs := holder.gives()
	close(stop)
	ours := <-held
	if theirs.Lost == "" {
		s.Errorf("P2: a holder that was stopped for longer than its TTL went on: %+v", theirs)
	}
	s.check([]Hold{theirs, ours})
	if !c.Caps().Fencing {
		return
	}
	// Suppose that it acts without a check of its lease: then a guard refuses its token.
	var guard fence.Gate
	if err := guard.Admit(ours.Token, holdfast.Exclusive); err != nil {
		s.Errorf("P3: the guard refused the holder: %v", err)
	}
	if err := guard.Admit(theirs.Token, holdfast.Exclusive); !errors.Is(err, fence.ErrStale) {
		s.Errorf("P3: the guard let a holder in that was stopped for longer than its TTL: %v", err)
	}
}

// waiterStopped: a stopped waiter delays a live one by two polls at most, and is served when
// it goes on.
func waiterStopped(s *scene) {
	c, holder := s.client(s.addr), s.client(s.addr)
	lease := s.acquire(holder, "x", long, slack, "P7: a free name")
	stopped, alive := s.child(), s.child()
	stopped.says("take x %v", long)
	s.waiting(c, "x", 1)
	alive.says("take x %v", long)
	s.waiting(c, "x", 2)
	stopped.stop()

	stop := make(chan struct{})
	close(stop)
	holds := []Hold{watch(lease, stop)}
	alive.hasIt(2*c.Caps().PollInterval()+c.Caps().Guarantees.Lateness+slack,
		"P7: a waiter behind one that is stopped")
	stopped.signal(syscall.SIGCONT)
	time.Sleep(brief / 10)
	holds = append(holds, alive.gives())
	stopped.hasIt(3*c.Caps().PollInterval()+slack, "P7: a waiter that was stopped")
	holds = append(holds, stopped.gives())
	s.check(holds)
}

// allKilled: a holder and three waiters are killed, and a waiter that comes later is served.
func allKilled(s *scene) {
	c := s.client(s.addr)
	holder := s.child()
	const ttl = 4 * brief // or the holder may lose it before the others have come
	holder.says("take x %v", ttl)
	holder.hasIt(slack, "P7: a free name")
	others := []*child{s.child(), s.child(), s.child()}
	for i, w := range others {
		w.says("take x %v", ttl)
		s.waiting(c, "x", i+1)
	}
	for _, w := range append(others, holder) {
		w.kill()
	}
	lease := s.acquire(c, "x", brief, opens(c, ttl)+2*c.Caps().PollInterval()+slack,
		"P7: behind waiters that are all dead")
	s.check([]Hold{watch(lease, soon())})
}
