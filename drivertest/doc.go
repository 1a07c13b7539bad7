// Package drivertest is for authors of drivers: the conformance suite that every driver MUST pass. The text of each
// failure begins with the promise that is broken (P1 to P11 of docs/design.md).
//
// A driver's test is one call, which says what the suite may do to the store:
//
//	func TestConformance(t *testing.T) {
//		server := start(t)
//		drivertest.Run(t, drivertest.Harness{
//			Open: func(t testing.TB) driver.Driver { return open(t, server.Addr) },
//			Transport: func(t testing.TB) (driver.Driver, drivertest.Transport) {
//				proxy := chaos.StartProxy(t, server.Addr)
//				return open(t, proxy.Addr), proxy
//			},
//			Restart: func(t testing.TB) { server.Restart(t) },
//		})
//	}
//
// Each case uses names and owners of its own, so that cases run at the same time on one store. Cases that let the
// store's time pass by Harness.Advance, restart the store, or count goroutines run one by one. A case that needs what
// the driver's Caps do not list is left out. Most cases run once with each kind of hold: exclusive, shared and of a
// semaphore's slots; taken by Try, taken by Enqueue, handed over to a waiter, and downgraded. A failure names the
// kind. Package drivertest/faults goes on with a real server that it pauses, kills and cuts off.
//
// Random histories come from a seed, which is logged. They are checked twice: scans find holds that overlap, tokens
// that do not grow and places that are granted out of order, in the whole history; a linearizability checker finds
// more, in pieces of it. The checkers and the cases are tested with drivers that are broken on purpose.
package drivertest
