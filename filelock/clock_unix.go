//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// storeTime is the wall clock: the instants of different processes cannot be
// compared here.
func storeTime(driver.Instant) driver.Instant { return driver.Instant(time.Now().UnixNano()) }

func checkClock() error { return nil }

// bootID need not tell boots apart, for the wall clock goes on over them.
func bootID() (string, error) { return "wall clock", nil }
