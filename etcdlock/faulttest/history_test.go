//go:build soak

package faulttest

import (
	"fmt"
	neturl "net/url"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/drivertest/faults"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestHistories runs random histories of a few clients and of a crowd, each with connections of its own, while the
// member is paused, killed and restarted, and clients are cut off, again and again.
func TestHistories(t *testing.T) {
	for _, clients := range []int{4, 64} {
		t.Run(fmt.Sprint(clients), func(t *testing.T) { histories(t, clients, testserver.Long(10_000, 20_000)) })
	}
}

// histories runs two with so many operations together.
func histories(t *testing.T, clients, operations int) {
	e := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	proxy := chaos.StartProxy(t, e.Addrs())
	store, err := neturl.Parse(url(proxy.Addr))
	must(t, err)
	injector := faults.StartInjector(t, e.Members[0], proxy, 2*time.Second)
	drivertest.RunHistories(t, drivertest.Harness{
		Open:         func(t testing.TB) driver.Driver { return faults.OpenDriver(t, store) },
		TTL:          time.Second,
		Clients:      clients,
		Operations:   operations,
		FaultBetween: injector.FaultBetween,
		Leaks: []goleak.Option{
			goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/internal/test/testserver.(*process).start.func1"),
			goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/drivertest/faults.(*Injector).run"),
		},
	})
	injector.End(t)
}
