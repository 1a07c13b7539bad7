package slot

import (
	"testing"
)

// TestTag: a tag is in its slot.
func TestTag(t *testing.T) {
	t.Parallel()
	for slot := 0; slot < Count; slot += 99 {
		if got := Of("x{" + Tag(slot) + "}"); got != slot {
			t.Fatalf("tag %s of slot %d is in %d", Tag(slot), slot, got)
		}
	}
}
