//go:build soak

package faulttest

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/drivertest/faults"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/zklock"
)

// TestHistories runs random histories on an ensemble, while one server after the other is paused, or killed and
// restarted, and clients are cut off from one of them.
func TestHistories(t *testing.T) {
	z := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{Members: 3, TickTime: tick})
	one := &oneOf{z: z}
	var addrs []string
	for _, m := range z.Members {
		link := chaos.StartProxy(t, m.Addr)
		one.links, addrs = append(one.links, link), append(addrs, link.Addr)
	}
	injector := faults.StartInjector(t, one, one, 2*time.Second)
	drivertest.RunHistories(t, drivertest.Harness{
		Open:         func(t testing.TB) driver.Driver { return persistent(t, addrs) },
		TTL:          time.Second,
		Clients:      16,
		Operations:   testserver.Long(4000, 40_000),
		FaultBetween: injector.FaultBetween,
		Leaks: []goleak.Option{
			goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/internal/test/testserver.(*process).start.func1"),
			goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/drivertest/faults.(*Injector).run"),
		},
	})
	injector.End(t)
}

// oneOf is one server of an ensemble and the way to it: with each fault another one, and every other time the
// leader.
type oneOf struct {
	z      *testserver.ZooKeeper
	links  []*chaos.Proxy // before the members
	faults int
	at     int // the member that has the fault
}

func (o *oneOf) next() {
	if o.faults++; o.faults%2 == 0 {
		o.at = slices.Index(o.z.Members, o.z.Leader())
	} else {
		o.at = rand.N(len(o.links))
	}
}

// Pause lets a leader stand still until another one has taken over.
func (o *oneOf) Pause() {
	o.next()
	m := o.z.Members[o.at]
	leads := o.z.Leader() == m
	m.Pause()
	if leads {
		o.z.NewLeader(m)
	}
}

func (o *oneOf) Resume()                             { o.z.Members[o.at].Resume() }
func (o *oneOf) Kill()                               { o.next(); o.z.Members[o.at].Kill() }
func (o *oneOf) Start()                              { o.z.Members[o.at].Start() }
func (o *oneOf) Cut()                                { o.next(); o.links[o.at].Cut() }
func (o *oneOf) Hold(d chaos.Direction, only string) { o.next(); o.links[o.at].Hold(d, only) }
func (o *oneOf) Heal()                               { o.links[o.at].Heal() }

// persistent opens a driver, for as long as it takes.
func persistent(t testing.TB, addrs []string) driver.Driver {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		d, err := zklock.New(context.Background(), zklock.Config{Servers: addrs, Poll: time.Second})
		if err == nil {
			return d
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}
