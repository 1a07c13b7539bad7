package drivertest

import (
	"testing"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
)

// Transport is what lies between one client and its store, in the hands of the
// suite. For a store that speaks TCP it is a *[chaos.Proxy]. Its methods are safe
// for concurrent use.
type Transport interface {
	// HoldReplies lets requests through and holds back what the store says,
	// until Heal.
	HoldReplies()
	// HoldRequests holds back what the client says, until Heal; it arrives then,
	// even if the caller has given up meanwhile.
	HoldRequests()
	// Cut ends all connections, with what is on its way, and lets none be made
	// until Heal.
	Cut()
	// Heal ends all that the others have begun.
	Heal()
	// Connections is how many connections the client has to its store; 0 if
	// there is no such thing.
	Connections() int
}

// InProcess is the transport of a driver that is built on another one in the same
// process: d stands between the two, in the place of a network.
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

// wire returns a client, which the caller closes, and its transport. Without one
// package chaos stands above the driver instead: that is enough to cut it off.
func (t *trial) wire() (driver.Driver, Transport) {
	t.Helper()
	if t.h.Transport != nil {
		return t.h.Transport(t.TB)
	}
	d := chaos.New(t.h.Open(t.TB), chaos.Options{})
	return d, InProcess(d)
}

// wired is wire of a client that ends with the case.
func (t *trial) wired() (driver.Driver, Transport) {
	t.Helper()
	d, wire := t.wire()
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("P9: Close: %v", err)
		}
	})
	t.Cleanup(wire.Heal) // before the client is closed, which may talk to the store
	return d, wire
}

// checkTransport fails a test that does not say what its driver's transport is.
// Without one the suite cannot see a reply that comes late or never, which is
// where most drivers go wrong.
func (h Harness) checkTransport(t testing.TB) {
	t.Helper()
	switch {
	case h.Transport == nil && !h.NoTransport: // the other cases run, and tell what they can
		t.Errorf("drivertest: Harness.Transport is required; set NoTransport for a store without one, such as files or the memory of the process")
	case h.Transport != nil && h.NoTransport:
		t.Fatal("drivertest: Harness has both Transport and NoTransport")
	}
}
