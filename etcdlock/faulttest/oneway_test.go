//go:build soak

package faulttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest/faults"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestOneWay is the run in which the session of etcd's own client learns of its
// end up to seconds after another has the lock: replies are held back, then
// requests do not arrive any more, then the old replies come. Who counts a lease
// from the arrival of a reply believes for too long (P1).
func TestOneWay(t *testing.T) {
	const (
		beside = 25
		ttl    = 2 * time.Second
	)
	runs := testserver.Long(3*beside, 8*beside)
	e := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	near, err := holdfast.Open(t.Context(), url(e.Addrs()))
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	var mu sync.Mutex
	var overlaps []time.Duration
	var workers sync.WaitGroup
	for w := range beside {
		workers.Go(func() {
			for i := range runs / beside {
				overlap, err := oneWay(t, e.Addrs(), near, fmt.Sprintf("%d/%d", w, i), ttl)
				mu.Lock()
				if overlaps = append(overlaps, overlap); err != nil {
					t.Error(err)
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	slices.Sort(overlaps)
	t.Logf("%d runs: overlaps from %v to %v, median %v", len(overlaps), overlaps[0], overlaps[len(overlaps)-1], overlaps[len(overlaps)/2])
	if worst := overlaps[len(overlaps)-1]; worst > 0 || len(overlaps) != runs {
		t.Errorf("P1: in %d runs a holder that was cut off one way trusted its lease for up to %v beside the next holder", len(overlaps), worst)
	}
}

// oneWay returns for how long two holders trusted their leases at the same time;
// less than nothing if there was time between.
func oneWay(t *testing.T, addr string, near *holdfast.Client, name string, ttl time.Duration) (time.Duration, error) {
	proxy := chaos.StartProxy(t, addr)
	far, err := holdfast.Open(t.Context(), url(proxy.Addr))
	if err != nil {
		return 0, err
	}
	defer far.Close()
	defer proxy.Heal() // first, or Close would wait
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	options := &holdfast.Options{TTL: ttl}
	one, err := far.Mutex(name, options).Acquire(ctx)
	if err != nil {
		return 0, err
	}
	watched := make(chan faults.Hold, 1)
	go func() { watched <- faults.Watch(one, nil, nil) }()
	go func() {
		proxy.Hold(chaos.ToClient, "")
		time.Sleep(ttl * 37 / 100)
		proxy.Hold(chaos.ToServer, "")
		time.Sleep(ttl * 50 / 100)
		proxy.Heal() // what was held back arrives …
		proxy.Hold(chaos.ToServer, "")
		time.Sleep(20 * time.Millisecond)
		proxy.Cut() // … and nothing more does
	}()
	two, err := near.Mutex(name, options).Acquire(ctx)
	now := driver.HostClock.Now()
	if err != nil {
		return 0, err
	}
	hold := <-watched
	if err = two.Release(); errors.Is(err, holdfast.ErrUncertain) {
		err = nil // it goes on in the background, on a machine that is so busy
	}
	return hold.Until.Sub(now), err
}
