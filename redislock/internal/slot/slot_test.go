package slot

import (
	"testing"
)

// TestTag: each slot has a tag.
func TestTag(t *testing.T) {
	t.Parallel()
	for slot := range Count {
		if got := Of("x{" + Tag(slot) + "}"); got != slot {
			t.Fatalf("tag %s of slot %d is in %d", Tag(slot), slot, got)
		}
	}
}
