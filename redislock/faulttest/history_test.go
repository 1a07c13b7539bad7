//go:build soak

package faulttest

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/drivertest/faults"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestHistories runs random histories of a few clients and of a crowd, a connection each, while the server is paused,
// killed and restarted, and clients are cut off, again and again. It keeps on disk what it has acknowledged, so all
// promises hold, also without the wait after a restart (hf.forget=go).
func TestHistories(t *testing.T) {
	for clients, operations := range map[int]int{4: testserver.Long(20_000, 60_000), 64: testserver.Long(4_000, 20_000)} {
		t.Run(fmt.Sprint(clients), func(t *testing.T) { histories(t, clients, operations) })
	}
}

func histories(t *testing.T, clients, operations int) {
	r := testserver.StartRedis(t, testserver.RedisOptions{AOF: true})
	proxy := chaos.StartProxy(t, r.Addr)
	injector := faults.StartInjector(t, r, proxy, time.Second)
	drivertest.RunHistories(t, drivertest.Harness{
		Open: func(t testing.TB) driver.Driver {
			return faults.OpenDriver(t, parse(t, url(proxy.Addr)+"?hf.forget=go"))
		},
		// Some of these are the withdrawals of others.
		Operations:   operations,
		Clients:      clients,
		FaultBetween: injector.FaultBetween,
		Leaks: []goleak.Option{
			goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/internal/test/testserver.(*process).watch"),
			goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/drivertest/faults.(*Injector).run"),
		},
	})
	injector.End(t)
}
