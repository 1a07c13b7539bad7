package slot

import (
	"fmt"
	"testing"
)

// TestTagLike: a tag is in the slot of the key, whatever braces this has.
func TestTagLike(t *testing.T) {
	t.Parallel()
	for n := range 200 {
		key := fmt.Sprint("}", n)
		if got := Of("x{" + TagLike(key) + "}"); got != Of(key) {
			t.Fatalf("%s is in slot %d, and its tag %s in %d", key, Of(key), TagLike(key), got)
		}
	}
}
