package celllock

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// quick is an election time with which the shortest TTL is 1 s.
const quick = 500 * time.Millisecond

// leaks are the goroutines of testserver, which end after the run.
var leaks = []goleak.Option{
	goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/internal/test/testserver.(*process).watch"),
}

func TestConformance(t *testing.T) {
	server := testserver.StartCell(t, testserver.CellOptions{Election: quick})
	drivertest.Run(t, drivertest.Harness{
		Open:      func(t testing.TB) driver.Driver { return dial(t, server.Addrs()) },
		Transport: through(server),
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
func through(server *testserver.Cell) func(testing.TB) (driver.Driver, drivertest.Transport) {
	return func(t testing.TB) (driver.Driver, drivertest.Transport) {
		ps, addrs := testserver.StartProxies(t, strings.Split(server.Addrs(), ",")...)
		return dial(t, strings.Join(addrs, ",")), ps
	}
}

func dial(t testing.TB, addrs string) *client {
	t.Helper()
	u, err := url.Parse("cell://" + addrs)
	if err != nil {
		t.Fatal(err)
	}
	d, err := open(t.Context(), u)
	if err != nil {
		t.Fatalf("celllock: %v", err)
	}
	return d.(*client)
}
