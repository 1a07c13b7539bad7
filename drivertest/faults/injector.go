package faults

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
)

// Injector injects faults into a server and into the connections to it, one after the other, and remembers when each
// began and ended.
type Injector struct {
	stop, stopped chan struct{}
	stopOnce      sync.Once

	mu     sync.Mutex
	counts map[string]int // by kind of fault
	faults []fault
}

// Link is the way of clients to a store, such as a chaos.Proxy: see there.
type Link interface {
	Cut()
	Heal()
	Hold(d chaos.Direction, only string)
}

// fault is one that was injected. While it lasts, ended is 0.
type fault struct{ began, ended driver.Instant }

// StartInjector starts to inject faults, with pauses of at most calm between them, or six times as long as the last
// fault if that is more: servers that take seconds to start would hardly ever be up together. The server and the
// proxies of the link must have been started before: then the last fault has ended when the test, passed or failed,
// ends them.
func StartInjector(t testing.TB, server Server, link Link, calm time.Duration) *Injector {
	in := &Injector{stop: make(chan struct{}), stopped: make(chan struct{}), counts: map[string]int{}}
	go in.run(server, link, calm)
	t.Cleanup(in.end)
	return in
}

func (in *Injector) end() {
	in.stopOnce.Do(func() { close(in.stop) })
	<-in.stopped
}

func (in *Injector) run(server Server, link Link, calm time.Duration) {
	defer close(in.stopped)
	kinds := []struct {
		name  string
		spoil func()
	}{
		{"paused", func() { server.Pause(); time.Sleep(rand.N(200 * time.Millisecond)); server.Resume() }},
		{"cut off", func() { link.Cut(); time.Sleep(rand.N(50 * time.Millisecond)); link.Heal() }},
		{"replies held back", func() { link.Hold(chaos.ToClient, ""); time.Sleep(rand.N(200 * time.Millisecond)); link.Heal() }},
		{"killed", func() { server.Kill(); server.Start() }},
	}
	last := time.Duration(0)
	for {
		for _, i := range rand.Perm(len(kinds)) { // all kinds before any comes again, so that a short run has several
			select {
			case <-in.stop:
				return
			case <-time.After(rand.N(max(calm, 6*last))):
			}
			began := time.Now()
			in.inject(kinds[i].name, kinds[i].spoil)
			last = time.Since(began)
		}
	}
}

// inject runs one fault and records when it began and ended.
func (in *Injector) inject(kind string, spoil func()) {
	in.mu.Lock()
	in.counts[kind]++
	in.faults = append(in.faults, fault{began: driver.HostClock.Now()})
	in.mu.Unlock()
	spoil()
	in.mu.Lock()
	defer in.mu.Unlock()
	in.faults[len(in.faults)-1].ended = driver.HostClock.Now()
}

// FaultBetween reports whether there was a fault at any time between two instants. It is made for
// drivertest.Harness.FaultBetween.
func (in *Injector) FaultBetween(from, until driver.Instant) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	for i := len(in.faults) - 1; i >= 0; i-- {
		switch f := in.faults[i]; {
		case f.ended != 0 && f.ended < from:
			return false // and so had all before it
		case f.began <= until:
			return true
		}
	}
	return false
}

// End stops injecting faults. It fails the test if there were fewer than two kinds.
func (in *Injector) End(t testing.TB) {
	t.Helper()
	in.end()
	if len(in.counts) < 2 {
		t.Errorf("hardly any fault was injected: %v", in.counts)
	}
	t.Logf("faults injected: %v", in.counts)
}
