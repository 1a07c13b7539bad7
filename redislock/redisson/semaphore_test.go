package redisson

import (
	"errors"
	"math"
	"testing"
	"time"
)

// TestSemaphoreOnTheWire asserts what Redisson reads and hears.
func TestSemaphoreOnTheWire(t *testing.T) {
	w := newWorld(t)
	ctx, s := t.Context(), w.semaphore()
	heard := w.hears("redisson_sc:{n}")
	tells := func(want string) {
		t.Helper()
		if m := heard(); m != want {
			t.Errorf("published %q, not %q", m, want)
		}
	}
	step := func(what string, want any, f func() (any, error)) {
		t.Helper()
		if got, err := f(); err != nil || got != want {
			t.Errorf("%s: %v, %v; right is %v", what, got, err, want)
		}
	}
	step("Available of none", 0, func() (any, error) { return s.Available(ctx) })
	step("TryAcquire of none", false, func() (any, error) { return s.TryAcquire(ctx, 1) })
	if err := s.Release(ctx, 1); !errors.Is(err, ErrNoSemaphore) {
		t.Errorf("Release of no semaphore returned %v", err)
	}
	w.is(nil)
	step("Create", true, func() (any, error) { return s.Create(ctx, 3, 0) })
	tells("3")
	step("Create again", false, func() (any, error) { return s.Create(ctx, 9, 0) })
	w.is("3")
	step("TryAcquire", true, func() (any, error) { return s.TryAcquire(ctx, 2) })
	w.is("1")
	step("TryAcquire of more than there are", false, func() (any, error) { return s.TryAcquire(ctx, 2) })
	w.is("1")
	step("Release", nil, func() (any, error) { return nil, s.Release(ctx, 2) })
	tells("3")
	step("Add", nil, func() (any, error) { return nil, s.Add(ctx, 4) })
	tells("7")
	step("Drain", 7, func() (any, error) { return s.Drain(ctx) })
	w.is("0")
	step("Drain of none", 0, func() (any, error) { return s.Drain(ctx) })
	step("Add of fewer", nil, func() (any, error) { return nil, s.Add(ctx, -2) })
	tells("-2")
	step("Available", -2, func() (any, error) { return s.Available(ctx) })
	step("Drain of fewer than none", 0, func() (any, error) { return s.Drain(ctx) })
	step("TryAcquire of fewer than none", false, func() (any, error) { return s.TryAcquire(ctx, 1) })

	w.do("DEL", "n")
	step("Create for a time", true, func() (any, error) { return s.Create(ctx, 1, time.Hour) })
	step("Release", nil, func() (any, error) { return nil, s.Release(ctx, 1) })
	if left := w.do("PTTL", "n").(int64); left <= 0 || left > time.Hour.Milliseconds() {
		t.Errorf("a semaphore for an hour ends in %d ms", left)
	}
}

// TestOtherKinds: what is at the name is something else.
func TestOtherKinds(t *testing.T) {
	w := newWorld(t)
	ctx, s, l := t.Context(), w.semaphore(), w.latch()
	for what, set := range map[string][]string{"a hash": {"HSET", "n", "a", "1"}, "a text": {"SET", "n", "abc"}} {
		w.do("DEL", "n")
		w.do(set...)
		before := w.do("DUMP", "n")
		for operation, f := range map[string]func() error{
			"Create":     func() error { _, err := s.Create(ctx, 1, 0); return err },
			"TryAcquire": func() error { _, err := s.TryAcquire(ctx, 1); return err },
			"Acquire":    func() error { return s.Acquire(ctx, 1) },
			"Release":    func() error { return s.Release(ctx, 1) },
			"Add":        func() error { return s.Add(ctx, 1) },
			"Drain":      func() error { _, err := s.Drain(ctx); return err },
			"Available":  func() error { _, err := s.Available(ctx); return err },
			"Latch":      func() error { _, err := l.Create(ctx, 1); return err },
			"CountDown":  func() error { _, err := l.CountDown(ctx); return err },
			"Count":      func() error { _, err := l.Count(ctx); return err },
			"Await":      func() error { return l.Await(ctx) },
			"Delete":     func() error { _, err := l.Delete(ctx); return err },
		} {
			if err := f(); !errors.Is(err, ErrMismatch) {
				t.Errorf("%s of %s returned %v, not ErrMismatch", operation, what, err)
			}
		}
		if w.do("DUMP", "n") != before {
			t.Errorf("%s was changed", what)
		}
	}
}

// TestPermitsWithLeases: the name is that of an RPermitExpirableSemaphore, whose string is a number, too.
func TestPermitsWithLeases(t *testing.T) {
	w := newWorld(t)
	ctx, s := t.Context(), w.created(3)
	w.do("ZADD", "{n}:timeout", "922337203685477", "sixteen bytes...")
	_, err1 := s.Create(ctx, 1, 0)
	_, err2 := s.TryAcquire(ctx, 1)
	_, err3 := s.Drain(ctx)
	for _, err := range []error{err1, err2, err3, s.Acquire(ctx, 1), s.Release(ctx, 1), s.Add(ctx, 1)} {
		if !errors.Is(err, ErrMismatch) {
			t.Errorf("%v, not ErrMismatch", err)
		}
	}
	w.is("3")
}

// TestNumbers: no request is sent for what is out of range.
func TestNumbers(t *testing.T) {
	w := newWorld(t)
	ctx, s, l := t.Context(), w.created(1), w.latch()
	before := w.calls()
	for _, n := range []int{0, -1, math.MinInt, MaxCount + 1} {
		_, err1 := s.TryAcquire(ctx, n)
		_, err2 := s.Create(ctx, n, 0)
		_, err3 := l.Create(ctx, n)
		if err1 == nil || err2 == nil || err3 == nil || s.Acquire(ctx, n) == nil || s.Release(ctx, n) == nil {
			t.Errorf("%d is taken for a number of permits or events", n)
		}
	}
	if _, err := s.Create(ctx, 1, time.Microsecond); err == nil {
		t.Error("a semaphore for a microsecond was asked for")
	}
	if s.Add(ctx, MaxCount+1) == nil || s.Add(ctx, -MaxCount-1) == nil {
		t.Error("too many permits more or fewer were asked for")
	}
	if _, err := s.c.Semaphore(""); err == nil {
		t.Error("a name was empty")
	}
	if got := w.calls(); got != before {
		t.Errorf("%d scripts were run", got-before)
	}
	w.is("1")
}
