package faults

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
)

// Storm spoils a server, and the way to it, again and again, and remembers when.
type Storm struct {
	stop, over chan struct{}
	stopOnce   sync.Once

	mu     sync.Mutex
	struck map[string]int
	blows  []blow
}

// blow is one thing that the storm has done. While it lasts, ended is 0.
type blow struct{ began, ended driver.Instant }

// StartStorm starts a storm, with pauses of at most calm. It has ended when the server and the
// proxy, which were started before, end with the test, also with one that fails.
func StartStorm(t testing.TB, server Server, proxy *chaos.Proxy, calm time.Duration) *Storm {
	s := &Storm{stop: make(chan struct{}), over: make(chan struct{}), struck: map[string]int{}}
	go s.rage(server, proxy, calm)
	t.Cleanup(s.end)
	return s
}

func (s *Storm) end() {
	s.stopOnce.Do(func() { close(s.stop) })
	<-s.over
}

func (s *Storm) rage(server Server, proxy *chaos.Proxy, calm time.Duration) {
	defer close(s.over)
	for kinds := []int(nil); ; kinds = kinds[1:] {
		if len(kinds) == 0 {
			kinds = rand.Perm(4) // each in turn, so that a short storm has several
		}
		select {
		case <-s.stop:
			return
		case <-time.After(rand.N(calm)):
		}
		switch kinds[0] {
		case 0:
			s.strike("paused", func() {
				server.Pause()
				time.Sleep(rand.N(200 * time.Millisecond))
				server.Resume()
			})
		case 1:
			s.strike("cut off", func() {
				proxy.Cut()
				time.Sleep(rand.N(50 * time.Millisecond))
				proxy.Heal()
			})
		case 2:
			s.strike("replies held back", func() {
				proxy.Hold(chaos.ToClient, "")
				time.Sleep(rand.N(200 * time.Millisecond))
				proxy.Heal()
			})
		case 3:
			s.strike("killed", func() {
				server.Kill()
				server.Start()
			})
		}
	}
}

func (s *Storm) strike(what string, spoil func()) {
	s.mu.Lock()
	s.struck[what]++
	s.blows = append(s.blows, blow{began: driver.HostClock.Now()})
	s.mu.Unlock()
	spoil()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blows[len(s.blows)-1].ended = driver.HostClock.Now()
}

// Struck reports whether anything was spoilt between two instants.
func (s *Storm) Struck(from, until driver.Instant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.blows) - 1; i >= 0; i-- {
		switch b := s.blows[i]; {
		case b.ended != 0 && b.ended < from:
			return false // and so were all before it
		case b.began <= until:
			return true
		}
	}
	return false
}

// End ends the storm, and fails the test if it has hardly done anything.
func (s *Storm) End(t testing.TB) {
	t.Helper()
	s.end()
	if len(s.struck) < 2 {
		t.Errorf("the store was hardly spoilt: %v", s.struck)
	}
	t.Logf("the store was spoilt: %v", s.struck)
}
