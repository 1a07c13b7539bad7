package drivertest

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
)

// Harness tells the suite how to reach a driver and what the suite may do to the store. Open MUST be set, and for
// [Run] either Transport or NoTransport. Every other field MAY have its zero value.
type Harness struct {
	// Open returns a new client on the one store of this run; the suite closes the client. Several goroutines call
	// Open at the same time. MUST be set.
	Open func(t testing.TB) driver.Driver

	// Advance lets the store's time pass by d, for all names. Nil: the suite waits until real time has passed.
	Advance func(t testing.TB, d time.Duration)

	// Transport returns a new client on the store of this run, as Open does, and the transport between the two; the
	// suite closes the client. For a store that speaks TCP it starts a chaos.Proxy before the server and connects the
	// client to the proxy. Most mistakes of drivers show only when a reply comes late or never, so it MUST be set for
	// Run, unless NoTransport is.
	Transport func(t testing.TB) (driver.Driver, Transport)

	// NoTransport says that nothing between client and store can delay or lose a message: the store is memory of the
	// process, or files of its host.
	NoTransport bool

	// Restart kills the store, starts it again with its data, and returns when it serves. Nil: restarts are not
	// tested.
	Restart func(t testing.TB)

	// TTL is that of holds that expire during a case. 0: 400 ms, or Caps.MinTTL if that is longer. It MUST be a
	// multiple of the unit in which the store counts.
	TTL time.Duration

	// Operations is the length of each random history. 0: 2000.
	Operations int

	// Clients is how many clients the histories have that are scanned. 0: 4. Those that are checked for
	// linearizability have four at most: else the check would not end.
	Clients int

	// Seed of the random histories. 0: a random one, which the test logs.
	Seed uint64

	// Parallel is how many cases run at the same time; most of the time they wait. 0: 16. Cases that advance the
	// store's time or restart the store run one by one.
	Parallel int

	// Refuses reports whether the driver refuses a name because other programs that use its layout do. The suite
	// asserts that it does, and that it takes every other name. The driver's documentation MUST say which. Nil: no
	// name is refused that driver.CheckName accepts.
	Refuses func(name string) bool

	// FaultBetween reports whether there was a fault at any time between two instants of driver.HostClock. It is set
	// if the caller injects faults into the store, or into the connections to it, during the random histories. The
	// suite then withdraws requests that fail, and a waiter may lose its place in the queue (P8) during a fault.
	// Several goroutines call it at the same time.
	FaultBetween func(from, until driver.Instant) bool

	// Plain says that RunHistories injects no faults of its own between the clients and the driver. A driver over
	// several stores needs it: a request that is repeated is another attempt to get a majority there, and may undo
	// the first.
	Plain bool

	// Untimed says that no verdict may depend on how fast the machine is. The suite then leaves out the cases that
	// need a stopwatch, and every bound is at least a minute.
	Untimed bool

	// Except lists cases that no driver of this store could pass, as theme/case, or as theme/case (kind) for one kind
	// of hold. The driver's documentation MUST say why.
	Except []string

	// Leaks are more options for goleak, for goroutines of a client library that outlive its connections by design.
	Leaks []goleak.Option

	slack time.Duration // for the suite's own tests; 0: 2 s, or a minute if Untimed
}

// Run runs the conformance suite. Each case is a subtest that is named after its theme and what it checks, and the
// text of each failure begins with the promise that is broken. The test MUST NOT be parallel: Run counts the
// goroutines of the whole process.
func Run(t *testing.T, h Harness) {
	t.Helper()
	h.checkTransport(t)
	runOn(realStage{t}, h)
}

// RunHistories runs only the random histories in which package chaos injects faults between clients and store. Half
// of Harness.Operations are scanned, and half are checked for linearizability. The caller MAY inject faults into the
// store itself, if its Guarantees promise that they break nothing; it MUST set Harness.FaultBetween then.
func RunHistories(t *testing.T, h Harness) {
	t.Helper()
	runOn(realStage{t}, h, "faults/a history with faults, scanned",
		"faults/a history with faults, linearizable")
}

// runOn runs the themes and cases that are named, or all, and then checks that they have left nothing behind.
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

// stage runs subtests. It is a test, or a recorder by which the suite's own tests watch a driver fail.
type stage interface {
	testing.TB
	sub(name string, f func(testing.TB))
}

type realStage struct{ *testing.T }

func (s realStage) sub(name string, f func(testing.TB)) {
	s.Run(name, func(t *testing.T) { f(t) })
}

// Transport stands between one client and its store, and lets the suite delay, hold back and cut what they send. For
// a store that speaks TCP it is a *[chaos.Proxy]. Its methods MUST be safe for concurrent use.
type Transport interface {
	// HoldReplies lets requests through and holds back what the store sends, until Heal.
	HoldReplies()
	// HoldRequests holds back what the client sends, until Heal. It MUST arrive then, even if the caller's context
	// has ended meanwhile.
	HoldRequests()
	// Cut ends all connections, drops what is on its way, and lets no connection be made until Heal.
	Cut()
	// Heal ends the effects of the other methods.
	Heal()
	// Connections returns how many connections the client has to its store; 0 if the transport has none.
	Connections() int
}

// InProcess returns the transport of a driver that is built on another one in the same process: d stands between the
// two, in the place of a network.
func InProcess(d *chaos.Driver) Transport { return inProcess{d} }

type inProcess struct{ *chaos.Driver }

func (w inProcess) Cut() {
	w.Partition()
	w.ReleaseReplies() // they end in the partition
}

func (w inProcess) Heal() {
	w.ReleaseRequests()
	w.ReleaseReplies()
	w.Driver.Heal()
}

func (inProcess) Connections() int { return 0 }

// wire returns a client, which the caller closes, and its transport. If the harness has none, package chaos stands
// above the driver instead, which is enough to cut the client off.
func (t *trial) wire() (driver.Driver, Transport) {
	t.Helper()
	if t.h.Transport != nil {
		return t.h.Transport(t.TB)
	}
	d := chaos.New(t.h.Open(t.TB), chaos.Options{})
	return d, InProcess(d)
}

// wired is like wire, and closes the client when the case ends.
func (t *trial) wired() (driver.Driver, Transport) {
	t.Helper()
	d, wire := t.wire()
	closes(t, d)
	t.Cleanup(wire.Heal) // before the client is closed, which may talk to the store
	return d, wire
}

// checkTransport fails a test whose harness has neither a transport nor NoTransport. Without a transport the suite
// cannot delay or lose a reply, where most drivers go wrong.
func (h Harness) checkTransport(t testing.TB) {
	t.Helper()
	switch {
	case h.Transport == nil && !h.NoTransport: // the other cases run, and tell what they can
		t.Errorf("drivertest: Harness.Transport is required; set NoTransport for a store without one, such as files or the memory of the process")
	case h.Transport != nil && h.NoTransport:
		t.Fatal("drivertest: Harness has both Transport and NoTransport")
	}
}
