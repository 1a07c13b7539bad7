//go:build !linux

package hostclock

import "time"

var (
	processStart = time.Now()
	host         suspendCounter
)

// Now returns the present time in nanoseconds.
func Now() int64 {
	now := time.Now()
	// Round(0) strips the monotonic reading, so the second difference is the wall clock's.
	return int64(host.now(now.Sub(processStart), now.Round(0).Sub(processStart.Round(0))))
}
