package driver

import "time"

// Instant is a point in time in nanoseconds on a clock of this host that also
// counts the time for which the host was suspended, and that nobody can set.
// Its zero point means nothing; instants of different hosts, and of different
// boots, must not be compared.
type Instant int64

// Add returns the instant d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns the time from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// Clock tells the local time that leases are trusted by. Drivers and the
// client above them must use the same one.
type Clock interface {
	// Now returns the present instant. It never goes back, and is safe for
	// concurrent use.
	Now() Instant
}

// HostClock is the clock of the host.
//
// On Linux it is CLOCK_BOOTTIME, read by a system call: package time reads
// CLOCK_MONOTONIC, which stands still while the host is suspended, so a lease
// would seem valid after a night with the lid closed. On other systems it is
// the monotonic clock plus every forward step that the wall clock made beyond
// it. That counts suspension too, and errs on the safe side: a wall clock that
// is set forward is taken for a suspension and ends leases early.
var HostClock Clock = hostClock{}

type hostClock struct{}

func (hostClock) Now() Instant { return hostNow() }
