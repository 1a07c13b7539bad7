package etcdlock

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// leaks are the goroutines of testserver, which end after the run.
var leaks = []goleak.Option{
	goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/internal/test/testserver.(*process).start.func1"),
}

func TestConformance(t *testing.T) {
	server := shared(t)
	drivertest.Run(t, drivertest.Harness{
		Open:      func(t testing.TB) driver.Driver { return dial(t, server.Addrs(), nil) },
		Transport: through(server, Escaped),
		Restart: testserver.Long(nil, func(testing.TB) {
			server.Members[0].Kill()
			server.Members[0].Start()
		}),
		TTL:        time.Second,
		Operations: testserver.Long(200, 2000),
		Parallel:   8,
		Untimed:    !testserver.Soak,
		Leaks:      leaks,
	})
}

// through returns what opens a client behind a proxy for each member.
func through(server *testserver.Etcd, layout string) func(testing.TB) (driver.Driver, drivertest.Transport) {
	return func(t testing.TB) (driver.Driver, drivertest.Transport) {
		ps, addrs := testserver.StartProxies(t, strings.Split(server.Addrs(), ",")...)
		return dial(t, strings.Join(addrs, ","), &Options{Layout: layout}), ps
	}
}
