package engine

import (
	"errors"
	"testing"
	"unsafe"

	"github.com/holdfastlock/holdfast/driver"
)

// TestHoldIsSmall: one word more, and every hold costs 16 bytes more, the next size that Go
// allocates (P9).
func TestHoldIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(Hold{}); size > 208 {
		t.Errorf("a hold takes %d bytes", size)
	}
	if size := unsafe.Sizeof(Caller{}); size > 144 {
		t.Errorf("a caller takes %d bytes", size)
	}
}

// TestForgottenCallers: a hold keeps no more callers that are over than it has others, in
// whatever order they release (P9), and a loss ends all that are left.
func TestForgottenCallers(t *testing.T) {
	e := New(Config{NewOwner: func() string { return "o" }, Silent: true})
	s := &Settings{}
	caller := func() *Caller {
		c := &Caller{}
		c.Init("n", s, false, nil)
		return c
	}
	first := caller()
	h := e.newHold(first, &driver.Grant{})
	shared := func() *Caller {
		c := caller()
		h.add(c)
		return c
	}
	release := func(c *Caller) {
		h.sharers--
		h.forget(c)
		e.end(c, ErrReleased)
		n := int32(0)
		for c := h.callers; c != nil; c = c.next {
			n++
		}
		if n > 2*h.sharers {
			t.Fatalf("%d callers in the list of a hold with %d", n, h.sharers)
		}
	}
	for range 1000 { // the first stays
		release(shared())
		a, b := shared(), shared()
		release(a)
		release(b)
	}
	var all []*Caller
	for range 100 {
		all = append(all, shared())
	}
	for _, c := range all[:90] { // the last in the list first
		release(c)
	}
	lost := errors.New("lost")
	e.endAll(h, lost)
	for i, c := range append(all[90:], first) {
		if c.stage != ended || c.err != lost {
			t.Errorf("caller %d has ended by %v", i, c.err)
		}
	}
}
