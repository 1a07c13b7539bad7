// Package faults is for authors of drivers: it injects faults into a real store and into the processes that use it,
// and checks from outside that the promises hold. No two holds on a name are ever trusted at the same time (P1),
// holders learn of losses in time (P2), and waiters are served once the fault is over (P5, P7).
//
// It treats the store as a program that it can stop, kill and cut off, and needs a Unix system. The author of a
// driver for a store that speaks TCP MUST supply
//
//   - a [Harness]: how to start a server of the store, which keeps its data on
//     disk, and the URL of the store at an address;
//   - a [Server], which is the started program: it can be paused, resumed, killed and
//     started again;
//   - a TestMain that calls [Main], because some cases start the test's program
//     again as a client that can be killed and stopped;
//   - an import of the driver, which registers the scheme of the URL.
//
// The whole test is then
//
//	func TestMain(m *testing.M) { faults.Main(m) }
//
//	func TestFaults(t *testing.T) {
//		faults.Run(t, faults.Harness{
//			Start: func(t testing.TB) (faults.Server, string) { return start(t) },
//			URL:   func(addr string) string { return "mystore://" + addr },
//		})
//	}
package faults

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

// Server is a server of a store that only one case uses. Its methods MUST end the test where they fail. They are
// called one at a time.
type Server interface {
	Pause()  // sends SIGSTOP
	Resume() // sends SIGCONT
	Kill()   // sends SIGKILL, and returns when the program has ended, paused or not
	Start()  // starts it again at the same address with its data; returns when it serves
}

// Harness says how to reach a store. Start and URL MUST be set.
type Harness struct {
	// Start starts a server and returns it and the address at which it listens. The server MUST end with the test,
	// and MUST keep on disk what it has acknowledged.
	Start func(t testing.TB) (server Server, addr string)
	// URL returns the URL, for holdfast.Open, of the store at an address. Child processes of the test open it too, so
	// it MUST NOT depend on the test's memory.
	URL func(addr string) string
	// Pushes is a text that clients send only on the connections on which the store tells them of hand-offs. "":
	// there are no such connections, clients poll.
	Pushes string
	// Goroutines is how many goroutines of each of the four clients wait for one name in the case with most
	// contention; as many again have a name each. 0: 16.
	Goroutines int
	// Unnoticed says that the store does not notice the death of a client, so that a dead waiter delays others
	// for two polls.
	Unnoticed bool
}

// The TTL of holds that are to outlast a fault, and of those that are not.
const (
	long  = 30 * time.Second
	brief = time.Second
)

// slack is how long a step may take that needs no time but on a busy machine.
const slack = 3 * time.Second

// scene is one case at work: a server, and clients of it.
type scene struct {
	testing.TB
	Harness
	server Server
	addr   string
}

// Run runs all cases at the same time, each with a server of its own: most of the time they wait.
func Run(t *testing.T, h Harness) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &scene{TB: t, Harness: h}
			s.server, s.addr = h.Start(t)
			c(s)
		})
	}
}

// client returns a client at an address, closed with the test.
func (s *scene) client(addr string) *holdfast.Client {
	s.Helper()
	c, err := holdfast.Open(context.Background(), s.URL(addr))
	s.must(err)
	s.Cleanup(func() {
		if err := c.Close(); err != nil {
			s.Errorf("P9: closing a client: %v", err)
		}
	})
	return c
}

// must ends the test if a step failed that no fault can spoil.
func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// waiting waits until n waiters are in the queue for a name. A store without a queue does not know its waiters: each
// of them asks within one poll.
func (s *scene) waiting(c *holdfast.Client, name string, n int) {
	s.Helper()
	if !c.Caps().Fair {
		time.Sleep(c.Caps().PollInterval())
		return
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		info, err := c.Inspect(context.Background(), name)
		if err == nil && len(info.Waiters) == n {
			return
		}
		if time.Now().After(end) {
			s.Fatalf("P7: %q has not had %d waiters within 10 s: %+v, %v", name, n, info, err)
		}
	}
}

// acquire acquires a lock, which must be possible within a time.
func (s *scene) acquire(c *holdfast.Client, name string, ttl, within time.Duration, why string) *holdfast.Lease {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	lease, err := c.Mutex(name, &holdfast.Options{TTL: ttl}).Acquire(ctx)
	if err != nil {
		info, _ := c.Inspect(context.Background(), name)
		s.Fatalf("%s: %v; the store shows %+v", why, err, info)
	}
	return lease
}

// opens is how long after its holder vanished a name may stay closed (P5).
func opens(c *holdfast.Client, ttl time.Duration) time.Duration {
	caps := c.Caps()
	return ttl + caps.Guarantees.Lateness + caps.PollInterval()
}

// check fails the test if the holds break P1, P2 or P3.
func (s *scene) check(holds []Hold) {
	s.Helper()
	for _, found := range slices.Concat(Overlaps(holds), Late(holds), Disorder(holds)) {
		s.Error(found)
	}
}

// stood runs f, and returns the longest time for which this process stood still meanwhile.
func stood(f func()) time.Duration {
	stop, longest := make(chan struct{}), make(chan time.Duration)
	go func() {
		most := time.Duration(0)
		for last := driver.HostClock.Now(); ; {
			select {
			case <-stop:
				longest <- most
				return
			case <-time.After(time.Millisecond):
			}
			now := driver.HostClock.Now()
			most, last = max(most, now.Sub(last)), now
		}
	}()
	f()
	close(stop)
	return <-longest
}
