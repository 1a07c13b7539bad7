package fence

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestGatesKeepNamesApart(t *testing.T) {
	var g Gates
	for i, name := range []string{"a", "A", "a ", "b/a"} {
		if err := g.Admit(name, 9-2, exclusive); err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
	err := g.Admit("a ", 6, shared)
	if stale, ok := errors.AsType[*StaleError](err); !ok || *stale != (StaleError{Resource: "a ", Token: 6, Mode: shared, Mark: 7}) {
		t.Errorf("got %v", err)
	}
	err = g.Do("b/a", 6, shared, func() error { t.Error("stale work ran"); return nil })
	if stale, ok := errors.AsType[*StaleError](err); !ok || stale.Resource != "b/a" {
		t.Errorf("got %v", err)
	}
	for _, name := range []string{"", "/a", "a\x00", "\xff", strings.Repeat("x", 513)} {
		if err := g.Admit(name, 9, exclusive); !errors.Is(err, ErrInvalid) {
			t.Errorf("name %.20q: %v", name, err)
		}
	}
}

// TestGatesLeaveTheWorksErrorAlone: work may be refused by another guard.
func TestGatesLeaveTheWorksErrorAlone(t *testing.T) {
	var g Gates
	inner := &StaleError{Resource: "inner", Token: 1, Mark: 2}
	if err := g.Do("outer", 1, exclusive, func() error { return inner }); err != inner || inner.Resource != "inner" {
		t.Errorf("got %v", err)
	}
}

// TestGatesRetain uses one gate often enough and another not, in virtual time:
// the marks of the first are never forgotten, those of the second after Retain
// at the earliest and twice that at the latest.
func TestGatesRetain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := Gates{Retain: time.Hour}
		admit := func(name string) {
			t.Helper()
			if err := g.Admit(name, 5, exclusive); err != nil {
				t.Fatal(err)
			}
		}
		stale := func(name string) bool { return errors.Is(g.Admit(name, 4, exclusive), ErrStale) }
		admit("used")
		for range 40 { // each use falls at another point of a generation
			time.Sleep(59 * time.Minute)
			if !stale("used") {
				t.Fatal("a mark in use was forgotten")
			}
		}
		admit("idle")
		time.Sleep(59 * time.Minute)
		if !stale("idle") {
			t.Error("a mark was forgotten before Retain")
		}
		for _, pause := range []time.Duration{2 * time.Hour, 25 * time.Hour} {
			admit("idle")
			time.Sleep(time.Minute)
			admit("other")
			time.Sleep(pause)
			admit("other")
			if stale("idle") {
				t.Errorf("a mark was kept for %v", pause)
			}
			if n := len(g.recent) + len(g.older); n > 3 {
				t.Errorf("%d gates are kept for 3 names", n)
			}
		}
	})
}

// TestGatesKeepABusyGate: work that takes many times as long as Retain keeps its gate. Other work waits for it, and
// its token is compared with the mark.
func TestGatesKeepABusyGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gates{Retain: time.Hour}
		stale := func(when string) {
			t.Helper()
			if err := g.Admit("x", 7, exclusive); !errors.Is(err, ErrStale) {
				t.Errorf("%s: the older token: %v", when, err)
			}
		}
		err := g.Do("x", 8, exclusive, func() error {
			before := g.gate("x")
			for range 10 {
				time.Sleep(time.Hour)
				if err := g.Admit("another", 1, exclusive); err != nil {
					t.Error(err)
				}
			}
			if g.gate("x") != before {
				t.Error("there is a second gate, for which other work need not wait")
			}
			stale("during the work")
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		stale("an hour after the work")
		if len(g.busy) != 0 {
			t.Errorf("%d gates seem to be busy", len(g.busy))
		}
	})
}
