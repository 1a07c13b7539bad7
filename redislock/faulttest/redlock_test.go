//go:build soak

package faulttest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/drivertest/faults"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// injectors spoil the servers of a Redlock, each by itself, so that any number of them fails at the same
// time.
type injectors []*faults.Injector

// FaultBetween reports whether there was a fault of any server.
func (in injectors) FaultBetween(from, until driver.Instant) bool {
	return slices.ContainsFunc(in, func(i *faults.Injector) bool { return i.FaultBetween(from, until) })
}

// ttlFor returns a TTL for a node: it has a tenth of it to answer, and may sync each vote to a disk that others use too.
func ttlFor(r *testserver.Redis) time.Duration {
	slowest := time.Duration(0)
	for range 20 {
		begun := time.Now()
		r.Ask("SET", "how quick", "it is")
		slowest = max(slowest, time.Since(begun))
	}
	r.Ask("DEL", "how quick")
	return min(max(400*time.Millisecond, 20*slowest), 8*time.Second)
}

// TestRedlockHistories runs random histories of five servers, each of which is paused, killed and restarted, and
// cut off, again and again. They keep on disk what they acknowledged, so all promises hold: at most one holds
// the name, and tokens grow. The clock of one is a minute ahead, and is set back to a minute behind.
func TestRedlockHistories(t *testing.T) {
	testserver.TakeTurn(t)
	var nodes []faults.Server
	var addresses []string
	var clock *testserver.Clock
	for i := range 5 {
		r := testserver.StartRedis(t, testserver.RedisOptions{AOF: true, Clock: i == 0})
		if i == 0 {
			clock = r.Clock
			clock.Set(time.Minute)
		}
		nodes, addresses = append(nodes, r), append(addresses, r.Addr)
	}
	back := time.AfterFunc(3*time.Second, func() { clock.Set(-time.Minute) })
	defer back.Stop()
	ttl := ttlFor(nodes[0].(*testserver.Redis))
	var all injectors
	var hosts []string
	for i, node := range nodes {
		proxy := chaos.StartProxy(t, addresses[i])
		hosts = append(hosts, proxy.Addr)
		all = append(all, faults.StartInjector(t, node, proxy, max(time.Second, 5*ttl/2))) // more rarely the longer the TTL is
	}
	u := parse(t, "redlock://"+strings.Join(hosts, ",")+"?hf.durable=yes")
	drivertest.RunHistories(t, drivertest.Harness{
		Open:         func(t testing.TB) driver.Driver { return faults.OpenDriver(t, u) },
		Operations:   testserver.Long(600, 12_000),
		FaultBetween: all.FaultBetween,
		Plain:        true,
		TTL:          ttl,
		Leaks: []goleak.Option{
			goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/internal/test/testserver.(*process).watch"),
			goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/drivertest/faults.(*Injector).run"),
		},
	})
	for _, in := range all {
		in.End(t)
	}
}
