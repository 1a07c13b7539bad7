package zklock

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// quick is a tick with which sessions last from 0.4 s to 4 s.
const quick = 200 * time.Millisecond

// except are the cases that no driver of ZooKeeper could pass. Another client than the one that has asked
// cannot withdraw a request that is still under way: there is no tombstone in Curator's layout, and none
// is needed, because the server takes the requests of a session in their order.
var except = []string{
	"transport/a try later than its withdrawal",
	// Curator's semaphore takes a place first, and permits by a second request: the session's timeout runs from there.
	"queue/hand-off counts from before the release (slots)",
	"transport/a late reply to a try counts from its request (slots)",
	"transport/a late reply of the queue counts from its request (slots)",
	"transport/a late reply that hands over counts from its request (slots)",
}

// dead is the case that needs sessions which are not much longer than a poll.
const dead = "faults/a cut waiter delays at most two polls"

// TestConformance has a server with long sessions, so that all holds and lock-delays last as long as the
// suite asks for.
func TestConformance(t *testing.T) {
	server := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{TickTime: quick, MaxSession: testserver.Long(15*time.Minute, 2*time.Minute)})
	h := harness(server)
	h.Restart = testserver.Long(nil, func(testing.TB) {
		server.Members[0].Kill()
		server.Members[0].Start()
	})
	h.Except = append(h.Except, dead)
	drivertest.Run(t, h)
}

func harness(server *testserver.ZooKeeper) drivertest.Harness {
	l := layout{}
	return drivertest.Harness{
		Open:      func(t testing.TB) driver.Driver { return dial(t, Config{Servers: strings.Split(server.Addrs(), ",")}) },
		Transport: through(server),
		TTL:       time.Second,
		Parallel:  8,
		Untimed:   !testserver.Soak,

		Operations: testserver.Long(200, 2000),
		Refuses:    func(name string) bool { return l.checkName(name) != nil },
		Except:     slices.Clone(except),
		Leaks:      leaks,
	}
}

// leaks are the goroutines of testserver, which end after the run.
var leaks = []goleak.Option{
	goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/internal/test/testserver.(*process).start.func1"),
}

// through returns what opens a client behind a proxy for each server.
func through(server *testserver.ZooKeeper) func(testing.TB) (driver.Driver, drivertest.Transport) {
	return func(t testing.TB) (driver.Driver, drivertest.Transport) {
		ps, addrs := testserver.StartProxies(t, strings.Split(server.Addrs(), ",")...)
		return dial(t, Config{Servers: addrs}), ps
	}
}

// dial returns a driver whose poll is short, so that dead waiters are waited for quickly, and a claim is
// shorter than a whole hold.
func dial(t testing.TB, config Config) *client {
	t.Helper()
	if config.Poll == 0 {
		config.Poll = time.Second
	}
	d, err := New(t.Context(), config)
	if err != nil {
		t.Fatalf("zklock.New: %v", err)
	}
	return d.(*client)
}
