package holdfast

import (
	"testing"
	"unsafe"
)

// TestHoldIsSmall: one word more, and every hold costs 16 bytes more, the next size
// that Go allocates (P9).
func TestHoldIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(hold{}); size > 224 {
		t.Errorf("a hold takes %d bytes", size)
	}
}
