//go:build soak && (linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package filelock

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// arrival queues and returns a channel that gets the time at which the hold
// arrived. It returns when the place is taken.
func arrival(t testing.TB, c *client, r driver.Request) <-chan time.Time {
	t.Helper()
	if _, err := c.Enqueue(t.Context(), r); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Enqueue: %v", err)
	}
	arrived := make(chan time.Time, 1)
	go func() {
		if _, err := waitFor(t.Context(), c, r); err == nil {
			arrived <- time.Now()
		}
	}()
	return arrived
}

// soon asserts that a waiter is granted its hold within three polls, which is the most that the dead may delay others.
func soon(t testing.TB, what string, waiting <-chan error) {
	t.Helper()
	select {
	case err := <-waiting:
		if err != nil {
			t.Errorf("P7: %s: the next in the queue did not get the name: %v", what, err)
		}
	case <-time.After(3 * poll):
		t.Fatalf("P7: %s: nobody has told the next in the queue within %v", what, 3*poll)
	}
}
