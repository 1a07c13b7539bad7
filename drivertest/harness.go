package drivertest

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastlock/holdfast/driver"
)

// Harness tells the suite how to reach a driver and what it may do to the
// store. Open is required, and for Run Transport or NoTransport; the zero value of
// every other field is fine.
type Harness struct {
	// Open returns a new client on the one store of this run; the suite closes
	// it. It is called from several goroutines at once. Required.
	Open func(t testing.TB) driver.Driver

	// Advance lets the store's time pass by d, for all names. Nil: the suite
	// waits for real time.
	Advance func(t testing.TB, d time.Duration)

	// Transport returns a new client on the store of this run, as Open does, and
	// what lies between the two; the suite closes the client. For a store that
	// speaks TCP it starts a chaos.Proxy before the server and connects through
	// that. Most mistakes of drivers show only when a reply comes late or never.
	// Run requires it, unless NoTransport is set.
	Transport func(t testing.TB) (driver.Driver, Transport)

	// NoTransport says that there is nothing between client and store that could
	// delay or lose what they say: the store is memory of the process, or files of
	// its host. The suite then judges by how long calls take.
	NoTransport bool

	// Restart stops the store hard and starts it again with its data, and
	// returns when it serves again. Nil: not tested.
	Restart func(t testing.TB)

	// TTL is a comfortable TTL for cases that let holds expire. 0: 400 ms, or
	// Caps.MinTTL where that is more. If that is not a multiple of the unit in
	// which the store counts, set TTL.
	TTL time.Duration

	// Operations is the length of each random history. 0: 2000.
	Operations int

	// Seed of the random histories. 0: chosen, and printed.
	Seed uint64

	// Clock is the one that the driver reads. Nil: driver.HostClock.
	Clock driver.Clock

	// Parallel is how many cases run at the same time; most of their time they
	// wait. 0: 16. Cases that advance the store's time, and those that restart
	// the store, run alone.
	Parallel int

	// BlindToKinds says that the store cannot tell that a name is in use as
	// another kind of lock or with other slots (P10). The suite then asserts
	// only that a request of another kind is not granted beside a hold.
	BlindToKinds bool

	// ReadWriteApart says that the layout, which the store shares with another program,
	// keeps a mutex and a read-write lock of one name apart (Request.RW). The suite then
	// asserts only that neither spoils the other; else, that they exclude each other.
	ReadWriteApart bool

	// Struck says that the store, or the way to it, fails now and then during the
	// random histories, and reports whether it has between two instants of the clock.
	// What is answered with an error is withdrawn, and is no failure; and a waiter may
	// lose its place in the queue (P8) while the store is struck, since one whose
	// connection is broken may be taken for one that is gone. Nil: it never is. Called
	// from several goroutines at once.
	Struck func(from, until driver.Instant) bool

	// Except are cases, as theme/case, that are left out because the store cannot
	// pass them by its nature. Say why in the driver's documentation.
	Except []string

	// Leaks are further options for goleak, for goroutines of a client library
	// that outlive its connections by design.
	Leaks []goleak.Option

	slack time.Duration // for the suite's own tests; 0: 2 s
}

// Run runs the conformance suite, each case as a subtest named after its theme
// and what it checks. A failure's message begins with the promise that is
// broken. Do not call it from a parallel test: it looks for leaked goroutines
// in the whole process.
func Run(t *testing.T, h Harness) {
	t.Helper()
	h.checkTransport(t)
	runOn(realStage{t}, h)
}

// RunHistories runs nothing but the random histories in which package chaos
// spoils what clients and store say to one another; half of Harness.Operations are
// scanned, and half are checked for linearizability. Meanwhile the caller may spoil
// the store itself, as far as its Guarantees go, and sets Struck then.
func RunHistories(t *testing.T, h Harness) {
	t.Helper()
	runOn(realStage{t}, h, "faults/a history with faults, scanned", "faults/a history with faults, linearizable")
}

// runOn runs the themes and cases that are named, or all, and then looks for what they
// have left behind.
func runOn(st stage, h Harness, only ...string) {
	st.Helper()
	leaks := append([]goleak.Option{goleak.IgnoreCurrent()}, h.Leaks...)
	s := newSuite(st, h)
	s.run(st, only...)
	s.swept(st)
	if err := goleak.Find(leaks...); err != nil {
		st.Errorf("P9: goroutines are left after every client was closed: %v", err)
	}
}

// stage runs subtests: a test, or what the suite's own tests put in its place
// to see a driver fail.
type stage interface {
	testing.TB
	sub(name string, f func(testing.TB))
}

type realStage struct{ *testing.T }

func (s realStage) sub(name string, f func(testing.TB)) {
	s.Run(name, func(t *testing.T) { f(t) })
}
