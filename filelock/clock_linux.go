package filelock

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// storeTime returns the store's time at an instant of a client's clock:
// CLOCK_BOOTTIME of the host, the same in all of its time namespaces.
func storeTime(i driver.Instant) driver.Instant {
	offset, _ := timeOffset()
	return i.Add(-offset)
}

// checkClock returns an error if the store's time cannot be told.
func checkClock() error {
	_, err := timeOffset()
	return err
}

// timeOffset is by how much CLOCK_BOOTTIME is ahead here of that of the host.
var timeOffset = sync.OnceValues(func() (time.Duration, error) {
	text, err := os.ReadFile("/proc/self/timens_offsets")
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil // a kernel without time namespaces
	}
	if err != nil {
		return 0, fmt.Errorf("filelock: the time namespace cannot be told: %w", err)
	}
	here, err1 := os.Readlink("/proc/self/ns/time")
	children, err2 := os.Readlink("/proc/self/ns/time_for_children")
	if err1 != nil || err2 != nil || here != children {
		// The offsets shown are those of the children.
		return 0, errors.New("filelock: this process has unshared its time namespace but is not in it, so its clock cannot be compared with that of others: use a child of it")
	}
	return parseOffset(string(text))
})

// parseOffset reads the offset of boottime from /proc/self/timens_offsets, see
// time_namespaces(7).
func parseOffset(text string) (time.Duration, error) {
	for line := range strings.Lines(text) {
		var seconds, nanoseconds int64
		if n, _ := fmt.Sscanf(line, "boottime %d %d", &seconds, &nanoseconds); n == 2 {
			return time.Duration(seconds)*time.Second + time.Duration(nanoseconds), nil
		}
	}
	return 0, errors.New("filelock: /proc/self/timens_offsets does not tell the offset of boottime")
}

// bootID identifies this boot of the host.
func bootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)), err
}
