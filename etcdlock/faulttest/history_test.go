//go:build soak

package faulttest

import (
	"context"
	neturl "net/url"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/drivertest/faults"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestHistories runs random histories while the member is paused, killed and
// restarted, and clients are cut off, again and again.
func TestHistories(t *testing.T) { histories(t, 4, testserver.Long(10_000, 20_000)) }

// TestCrowdHistories is the same with 64 clients, each with connections of its own.
func TestCrowdHistories(t *testing.T) { histories(t, 64, testserver.Long(10_000, 20_000)) }

// histories runs two with so many operations together.
func histories(t *testing.T, clients, operations int) {
	e := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	proxy := chaos.StartProxy(t, e.Addrs())
	injector := faults.StartInjector(t, e.Members[0], proxy, 2*time.Second)
	drivertest.RunHistories(t, drivertest.Harness{
		Open:         func(t testing.TB) driver.Driver { return persistent(t, proxy.Addr) },
		TTL:          time.Second,
		Clients:      clients,
		Operations:   operations,
		FaultBetween: injector.FaultBetween,
		Leaks: []goleak.Option{
			goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/internal/testserver.(*EtcdMember).start.func1"),
			goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/drivertest/faults.(*Injector).run"),
		},
	})
	injector.End(t)
}

// persistent opens a driver, for as long as it takes.
func persistent(t testing.TB, addr string) driver.Driver {
	t.Helper()
	u, err := neturl.Parse(url(addr))
	if err != nil {
		t.Fatal(err)
	}
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
