package etcdlock

import (
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
)

// waiters returns when so many wait for a name.
func waiters(t *testing.T, locks *holdfast.Client, name string, want int) {
	t.Helper()
	for {
		info, err := locks.Inspect(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if len(info.Waiters) == want {
			return
		}
		time.Sleep(5 * time.Millisecond) // then look again
	}
}
