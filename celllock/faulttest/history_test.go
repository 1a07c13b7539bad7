//go:build soak

package faulttest

import (
	"context"
	"math/rand/v2"
	neturl "net/url"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/drivertest/faults"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestHistories runs random histories on three members, while one after the other is paused, or killed and
// restarted, and clients are cut off from one of them.
func TestHistories(t *testing.T) {
	c := startThree(t, testserver.CellOptions{Election: quick})
	one := &oneOf{threeMembers: c}
	injector := faults.StartInjector(t, one, one, 2*time.Second)
	drivertest.RunHistories(t, drivertest.Harness{
		Open:         func(t testing.TB) driver.Driver { return persistent(t, c.addrs) },
		TTL:          time.Second,
		Clients:      16,
		Operations:   testserver.Long(4000, 20_000),
		FaultBetween: injector.FaultBetween,
		Leaks: []goleak.Option{
			goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/internal/test/testserver.(*process).watch"),
			goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/drivertest/faults.(*Injector).run"),
		},
	})
	injector.End(t)
}

// oneOf is one member of a cell and the way to it: with each fault another one, and every other time the
// leader.
type oneOf struct {
	*threeMembers
	faults int
	at     int // the member that has the fault
}

func (o *oneOf) next() {
	if o.faults++; o.faults%2 == 0 {
		o.at = slices.Index(o.Members, o.Leader())
	} else {
		o.at = rand.N(len(o.Members))
	}
}

// Pause lets a leader stand still until another one has taken over.
func (o *oneOf) Pause() {
	o.next()
	m := o.Members[o.at]
	leads := o.Leader() == m
	m.Pause()
	if leads {
		o.NewLeader(m)
	}
}

func (o *oneOf) Resume()                             { o.Members[o.at].Resume() }
func (o *oneOf) Kill()                               { o.next(); o.Members[o.at].Kill() }
func (o *oneOf) Start()                              { o.Members[o.at].Start() }
func (o *oneOf) Cut()                                { o.next(); o.links[o.at].Cut() }
func (o *oneOf) Hold(d chaos.Direction, only string) { o.next(); o.links[o.at].Hold(d, only) }
func (o *oneOf) Heal()                               { o.links[o.at].Heal() }

// persistent opens a driver, for as long as it takes.
func persistent(t testing.TB, addrs string) driver.Driver {
	t.Helper()
	u, err := neturl.Parse(url(addrs))
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		d, err := driver.Open(context.Background(), u)
		if err == nil {
			return d
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}
