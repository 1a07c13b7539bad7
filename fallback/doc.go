// Package fallback keeps locks in a second store while the first is down. It is a driver over two drivers:
//
//	d, err := fallback.New(first, second, nil)
//	client, err := holdfast.New(d, nil)
//
// A breaker watches the first store. It opens when the store has answered nothing for Options.Silence,
// a probe included. A probe withdraws a request that was never made. So a store that merely refuses locks,
// such as a Redis whose memory is full, is not silent: its errors are shown.
//
// A hold in the second store is degraded (holdfast.Lease.Degraded), and its token is 0, because tokens of
// two stores cannot be compared. So Caps.Fencing is false. The second store should be used for nothing else.
//
// A client may trust a lease of the first store until its TTL is over. So no name is taken from the
// second store until that must be so for all leases, counted from when the silence began (Options.After).
// When the first store answers again, it grants a name only if the name is free in the second. If the second
// is silent then, its holds are not seen.
//
// Clients that see different stores do not exclude each other (P1): Caps.Guarantees and
// docs/choose.md say when that happens.
package fallback
