// Package faults is for authors of drivers: it injects faults into a real store and into the
// processes that use it, and checks from outside that the promises hold. No two holds on a name
// are ever trusted at the same time (P1), holders learn of losses in time (P2), and waiters are
// served once the fault is over (P5, P7).
//
// It uses locks as their users do, through package holdfast, and treats the store as a
// program that it can stop, kill and cut off. It needs a Unix system. The author of a
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
//
// Cases put a chaos.Proxy between a client and the server by themselves.
package faults

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

// Server is a server of a store that only one case uses. Its methods MUST end the test
// where they fail. They are called one at a time.
type Server interface {
	Pause()  // sends SIGSTOP
	Resume() // sends SIGCONT
	Kill()   // sends SIGKILL, and returns when the program has ended, paused or not
	Start()  // starts it again at the same address with its data; returns when it serves
}

// Harness says how to reach a store. Start and URL MUST be set.
type Harness struct {
	// Start starts a server and returns it and the address at which it listens. The
	// server MUST end with the test, and MUST keep on disk what it has acknowledged.
	Start func(t testing.TB) (server Server, addr string)
	// URL returns the URL, for holdfast.Open, of the store at an address. Child processes
	// of the test open it too, so it MUST NOT depend on the test's memory.
	URL func(addr string) string
	// Pushes is a text that clients send only on the connections on which the store
	// tells them of hand-offs. "": there are no such connections, clients poll.
	Pushes string
	// Goroutines is how many goroutines of each of the four clients wait for one name in
	// the case with most contention; as many again have a name each. 0: 16.
	Goroutines int
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

// Run runs all cases at the same time, each with a server of its own: most of the time
// they wait.
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

var cases = map[string]func(*scene){
	"short pauses of the store": shortPauses,
	"a long pause of the store": longPause,
	"the store is restarted":    restart,
	"cut for less than the TTL": func(s *scene) { s.oneCut(brief, 4*brief) },
	"cut for more than the TTL": func(s *scene) { s.oneCut(2*brief, brief) },
	"replies are held back":     repliesHeld,
	"requests are held back":    requestsHeld,
	"pushes are held back":      pushesHeld,
	"a push later than the TTL": latePush,
	"everything is slow":        slowNetwork,

	"the holder is killed":         holderKilled,
	"the first waiter is killed":   func(s *scene) { s.waiterKilled(0) },
	"a waiter between is killed":   func(s *scene) { s.waiterKilled(1) },
	"the holder is stopped":        holderStopped,
	"the first waiter is stopped":  waiterStopped,
	"a holder and waiters, killed": allKilled,
}

// client returns a client at an address, closed with the test.
func (s *scene) client(addr string) *holdfast.Client {
	s.Helper()
	c, err := holdfast.Open(context.Background(), s.URL(addr))
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := c.Close(); err != nil {
			s.Errorf("P9: closing a client: %v", err)
		}
	})
	return c
}

// until waits until is returns true.
func (s *scene) until(what string, within time.Duration, is func() bool) {
	s.Helper()
	for end := time.Now().Add(within); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("%s: not within %v", what, within)
		}
	}
}

// waiting waits until n waiters are in the queue for a name. A store without a queue does
// not know its waiters; there it waits for one poll, within which each of them has asked.
func (s *scene) waiting(c *holdfast.Client, name string, n int) {
	s.Helper()
	if !c.Caps().Fair {
		time.Sleep(c.Caps().PollInterval())
		return
	}
	s.until(fmt.Sprintf("%d waiters on %q", n, name), 10*time.Second, func() bool {
		info, err := c.Inspect(context.Background(), name)
		return err == nil && len(info.Waiters) == n
	})
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
