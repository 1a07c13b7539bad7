//go:build !linux

package driver

import "time"

var (
	processStart = time.Now()
	host         suspendCounter
)

func hostNow() Instant {
	now := time.Now()
	// Round(0) strips the monotonic reading, so the second difference is the wall clock's.
	return host.now(now.Sub(processStart), now.Round(0).Sub(processStart.Round(0)))
}
