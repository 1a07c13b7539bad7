// Package faults spoils a real store and the processes that use it, and checks
// from outside that the promises hold: no two holds on a name are ever trusted
// at the same time (P1), losses are known in time (P2), and whoever waits is
// served once the fault is over (P5, P7).
//
// It sees locks as their users do, through package holdfast, and the store as
// its operator does: a program that can be stopped, killed and cut off. It needs
// a Unix system. The author of a driver for a store that speaks TCP supplies
//
//   - a [Harness]: how to start a server of the store, which keeps its data on
//     disk, and the URL of the store at an address;
//   - a [Server], which is the started program: the four signals and restarts;
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

// Server is a private server of a store. Its methods end the test where they
// fail. They are called one at a time.
type Server interface {
	Pause()  // sends SIGSTOP
	Resume() // sends SIGCONT
	Kill()   // sends SIGKILL, and returns when the program has ended, paused or not
	Start()  // starts it again at the same address with its data; returns when it serves
}

// Harness says how to reach a store. Start and URL are required.
type Harness struct {
	// Start starts a server that ends with the test and keeps on disk what it
	// has acknowledged, and returns where it listens.
	Start func(t testing.TB) (server Server, addr string)
	// URL is the store at an address, for holdfast.Open. Children of the test open
	// it too, so it must not depend on the test's memory.
	URL func(addr string) string
	// Pushes is a text that clients say on those connections only on which the
	// store tells them of hand-offs. "": there is none, they poll.
	Pushes string
	// Crowd is how many goroutines each of four clients has in the case with
	// most of them, twice. 0: 16.
	Crowd int
}

// The TTL of holds that are to outlast a fault, and of those that are not.
const (
	long  = 30 * time.Second
	brief = time.Second
)

// slack is for what takes no time, on a machine that is busy.
const slack = 3 * time.Second

// scene is one case at work: a server, and clients of it.
type scene struct {
	testing.TB
	Harness
	server Server
	addr   string
}

// Run runs all cases, each with a server of its own, at the same time: most of
// theirs they wait.
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

// until waits until a thing is so.
func (s *scene) until(what string, within time.Duration, is func() bool) {
	s.Helper()
	for end := time.Now().Add(within); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("%s: not within %v", what, within)
		}
	}
}

// waiting waits until so many wait for a name. A store without a queue knows of
// none; there it waits for a poll, in which each of them has asked.
func (s *scene) waiting(c *holdfast.Client, name string, n int) {
	s.Helper()
	if !c.Caps().Ops.Has(driver.OpQueue | driver.OpInspect) {
		time.Sleep(c.Caps().PollInterval())
		return
	}
	s.until(fmt.Sprintf("%d waiters on %q", n, name), 10*time.Second, func() bool {
		info, err := c.Inspect(context.Background(), name)
		return err == nil && len(info.Waiters) == n
	})
}

// acquire waits for a lock that must open within a time.
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

// check fails the test for holds that break P1, P2 or P3.
func (s *scene) check(holds []Hold) {
	s.Helper()
	for _, found := range slices.Concat(Overlaps(holds), Late(holds), Disorder(holds)) {
		s.Error(found)
	}
}

// stood measures how long this process stands still at most, while f runs.
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
