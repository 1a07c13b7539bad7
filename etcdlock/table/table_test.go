package table

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
)

func TestAdmits(t *testing.T) {
	x, s := Use{Mode: driver.Exclusive}, Use{Mode: driver.Shared}
	slot := func(slots, permits int) Use { return Use{Mode: driver.Slot, Slots: slots, Permits: permits} }
	foreign := Entry{}
	of := func(u Use) Entry {
		return Entry{Ours: true, Mode: u.Mode, Value: Value{Slots: u.Slots, Permits: u.Permits}}
	}
	for i, c := range []struct {
		before []Entry
		use    Use
		want   bool
	}{
		{nil, x, true}, {nil, s, true}, {nil, slot(2, 2), true}, {nil, slot(2, 3), false},
		{[]Entry{of(s)}, s, true}, {[]Entry{of(s)}, x, false}, {[]Entry{of(x)}, s, false},
		{[]Entry{of(s), of(x)}, s, false}, // behind a writer that waits
		{[]Entry{foreign}, s, false}, {[]Entry{foreign}, x, false}, {[]Entry{foreign}, slot(2, 1), false},
		{[]Entry{of(slot(3, 2))}, slot(3, 1), true}, {[]Entry{of(slot(3, 2))}, slot(3, 2), false},
		{[]Entry{of(slot(3, 2)), of(slot(3, 3))}, slot(3, 1), false}, // behind a bigger one that waits
		{[]Entry{of(slot(3, 1))}, slot(4, 1), false}, {[]Entry{of(slot(3, 1))}, s, false},
	} {
		if got := Admits(c.before, c.use); got != c.want {
			t.Errorf("case %d: admitted is %t", i, got)
		}
	}
}

// TestOtherVersion: nobody gets beside a key of another version of the format, and the error says why (P10).
func TestOtherVersion(t *testing.T) {
	l, err := NewLayout(Escaped, "")
	if err != nil {
		t.Fatal(err)
	}
	old := Entry{Ours: true, Mode: driver.Shared, Value: Value{Version: l.Version - 1}}
	err = l.Mismatch(&driver.Request{Mode: driver.Shared}, []Entry{old})
	if !errors.Is(err, driver.ErrMismatch) || !strings.Contains(fmt.Sprint(err), "version 1 of the format") {
		t.Errorf("a reader beside a reader of another version: %v", err)
	}
}

// TestRevisionsLeaveRoom: tokens stay below 2^53.
func TestRevisionsLeaveRoom(t *testing.T) {
	for _, kind := range []string{Escaped, Stock} {
		l, err := NewLayout(kind, "")
		if err != nil {
			t.Fatal(err)
		}
		low, high := int64(1), int64(1)<<53
		for low+1 < high { // the highest that is accepted
			if mid := (low + high) / 2; l.CheckRevision(mid) == nil {
				low = mid
			} else {
				high = mid
			}
		}
		top := l.Token(low) + driver.Token(l.Block()) - 1
		if kind == Escaped && (top > MaxToken || top < MaxToken/4) {
			t.Errorf("the highest token of a store that is accepted is %d", top)
		}
		for _, rev := range []int64{1, 7, low} {
			for _, n := range []int{0, l.Block() - 1} {
				if token := l.Token(rev) + driver.Token(n); l.Created(token) != rev {
					t.Errorf("token %d of revision %d is of %d", token, rev, l.Created(token))
				}
			}
			if l.Token(rev)+driver.Token(l.Block()) > l.Token(rev+1) {
				t.Errorf("P3: the block of revision %d reaches into that of the next", rev)
			}
		}
	}
}
