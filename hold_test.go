package holdfast

import (
	"testing"
	"unsafe"

	"github.com/holdfastlock/holdfast/driver"
)

// TestHoldIsSmall: one word more, and every hold costs 16 bytes more, the next size
// that Go allocates (P9).
func TestHoldIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(hold{}); size > 224 {
		t.Errorf("a hold takes %d bytes", size)
	}
}

// TestForgottenLeases: a hold keeps no more leases that are over than it has others,
// in whatever order they are released (P9), and ends all that are left.
func TestForgottenLeases(t *testing.T) {
	h := newHold(&Lock{how: &settings{}}, driver.Grant{}, 0)
	release := func(le *Lease) {
		h.users--
		le.finish(ErrReleased)
		h.forget(le)
		n := int32(0)
		for le := h.leases; le != nil; le = le.next {
			n++
		}
		if n > 2*h.users {
			t.Fatalf("%d leases in the list of a hold with %d", n, h.users)
		}
	}
	for range 1000 { // the first stays
		release(h.handle())
		a, b := h.handle(), h.handle()
		release(a)
		release(b)
	}
	var all []*Lease
	for range 100 {
		all = append(all, h.handle())
	}
	for _, le := range all[:90] { // the last in the list first
		release(le)
	}
	h.end(ErrClosed)
	for i, le := range append(all[90:], &h.first) {
		if e := le.end.Load(); e == nil || e.err != ErrClosed {
			t.Errorf("lease %d has ended by %v", i, e)
		}
	}
}
