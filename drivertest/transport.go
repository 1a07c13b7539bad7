package drivertest

import (
	"testing"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
)

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
