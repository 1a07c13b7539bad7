package driver

import (
	"time"

	"github.com/holdfastlock/holdfast/internal/hostclock"
)

// Instant is a point in time, in nanoseconds, on a clock of this host that nobody can set and that counts the
// time for which the host was suspended. Its zero point means nothing: do not compare instants of different
// hosts or of different boots.
type Instant int64

// Add returns the instant d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns the time from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// Clock tells the local time by which leases are trusted. A driver and the client above it MUST use the same
// one.
type Clock interface {
	// Now returns the present instant. It MUST NOT go back, and MUST be safe for concurrent use.
	Now() Instant
}

// HostClock is the clock of the host: see package hostclock.
var HostClock Clock = hostClock{}

type hostClock struct{}

func (hostClock) Now() Instant { return Instant(hostclock.Now()) }
