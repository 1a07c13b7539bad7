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

// operations is how many the two random histories have together.
var operations = testserver.Long(20_000, 60_000)

// TestHistories runs random histories while the server is paused, killed and
// restarted, and clients are cut off, again and again. It keeps on disk what it has acknowledged, so all promises hold.
func TestHistories(t *testing.T) { histories(t, 4, operations) }

// TestCrowdHistories does so with 64 clients, a connection each.
func TestCrowdHistories(t *testing.T) { histories(t, 64, testserver.Long(4_000, 20_000)) }

func histories(t *testing.T, clients, operations int) {
	r := testserver.StartRedis(t, testserver.RedisOptions{AOF: true})
	proxy := chaos.StartProxy(t, r.Addr)
	injector := faults.StartInjector(t, r, proxy, time.Second)
	drivertest.RunHistories(t, drivertest.Harness{
		Open: func(t testing.TB) driver.Driver { return persistent(t, proxy.Addr) },
		// Some of these are the withdrawals of others.
		Operations:   operations,
		Clients:      clients,
		FaultBetween: injector.FaultBetween,
		Leaks: []goleak.Option{
			goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/internal/testserver.(*process).watch"),
			goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/drivertest/faults.(*Injector).run"),
		},
	})
	injector.End(t)
}

// persistent opens a driver, for as long as it takes.
func persistent(t testing.TB, addr string) driver.Driver {
	t.Helper()
	return opened(t, parse(t, url(addr)))
}

func opened(t testing.TB, u *neturl.URL) driver.Driver {
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
