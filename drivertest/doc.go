// Package drivertest is the conformance suite of Holdfast's drivers. Each case
// names the promise that a failure breaks (P1 to P11 of docs/design.md).
//
// A driver's test is one call, with what the suite may do to the store:
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
// Every theme has a file. Cases ask with names and owners of their own, so that
// they run side by side on one store; those that let the store's time pass by
// Harness.Advance, restart it, or count goroutines, run alone. Package
// drivertest/faults goes on with a real server that is paused, killed and cut off. What a driver's Caps do not list
// is asserted to be refused.
//
// Random histories come from a seed, which is printed. They are judged twice:
// by scans for holds that overlap, tokens that do not grow and places granted
// out of order, which look at everything, and by a linearizability checker,
// which looks deeper at pieces. Both, and the cases, are tested with drivers
// that are broken on purpose.
package drivertest
