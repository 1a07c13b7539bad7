// Package fallback decides what happens to locks while their store is down. It is a driver over two
// drivers: the first store, and what is done while the first is silent.
//
//	first, err := driver.Open(ctx, redisURL)      // or fallback.Open, which takes both URLs
//	d, err := fallback.New(first, nil, nil)       // refuse at once
//	d, err := fallback.New(first, second, nil)    // use the second store
//	client, err := holdfast.New(d, nil)
//
// A breaker watches the first store. If it has answered nothing for Options.Silence, and a probe
// gets no answer either, the breaker opens. A probe withdraws a request that was never made. So a
// store that refuses locks, but can still do that, is not silent: its errors are shown. For
// example, a Redis whose memory is full does not open the breaker.
//
// Without a second store, acquires then fail at once, by an error that matches [ErrSilent], instead
// of waiting for time-outs. An Acquire that has been told to wait goes on waiting, and gets its
// turn if the store answers again.
//
// With a second store, locks are taken there. Such a hold is degraded: holdfast.Lease.Degraded and
// holdfast.Event.Degraded are true, and its token is 0, because tokens of two stores cannot be
// compared. For that reason Caps.Fencing is false, and a holdfast.ClientOptions.Need for fencing
// fails.
//
// # What is safe, and what is not
//
// Suppose A has the lock from the first store when that store goes silent. A trusts its lease until
// the TTL is over. So no name is taken from the second store until the TTL, the lock-delay and the
// minimum hold of the request are over, counted from when the silence began (Options.After). All
// clients of a lock should therefore use the same TTL. Until then the name counts as closed:
// TryAcquire returns ErrHeld, and Acquire waits.
//
// Suppose then that the first store answers again while A holds the lock in the second. A name is
// taken from the first store only if nobody holds it in the second, and nobody waits for it there.
// From then on only those who wait in the second store already get anything there. The breaker
// closes, and this check ends, when every lease that was taken from the second has ended, whichever
// client of the second store has it. A client that has had no answer from the first for
// Options.Silence looks at the second before it takes a lock again, because it may have missed that
// others use it. The second store should be used for nothing else.
//
// What remains is this: clients that see different stores exclude each other no more (P1). If one
// client is cut off from the first store, it uses the second, beside those that reach the first.
// The same may happen for the time of a probe while the first store goes silent or comes back,
// because clients do not notice that at the same instant. A second store that not all clients
// share, such as a directory of each host, excludes only those that share it. Caps.Guarantees say
// so.
//
// # What happens to whom
//
//   - Leases from the first store are renewed and released there, whatever the breaker's state. If
//     that fails until the trust deadline, they are lost, as without this package.
//   - Requests and waits that are under way at the first store when the breaker opens end. With a
//     second store they begin anew there, after Options.After; they lose their places in the queue.
//     What they may have left in the first store is withdrawn when it answers again.
//   - Leases from the second store are renewed and released there until they end, also after the
//     first store answers again. They are not moved.
//   - Inspect, List and Watch show the store that is in use: the second while the breaker is open;
//     while it is half-open the second for names that are in use there, else the first. Tokens of
//     the second store are not shown.
//   - Break breaks holds of the first store. A degraded hold has no token, so open the second store
//     itself to break it.
package fallback
