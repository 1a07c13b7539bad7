//go:build soak

package testserver

import (
	"sync/atomic"
	"testing"
	"time"
)

// TestTakeTurn: tests have turns one after the other.
func TestTakeTurn(t *testing.T) {
	var inside, turns atomic.Int32
	t.Run("all", func(t *testing.T) {
		for range 3 {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				TakeTurn(t)
				if inside.Add(1) > 1 {
					t.Error("two tests have a turn")
				}
				time.Sleep(10 * time.Millisecond)
				inside.Add(-1)
				turns.Add(1)
			})
		}
	})
	if turns.Load() != 3 {
		t.Errorf("%d turns of 3", turns.Load())
	}
}
