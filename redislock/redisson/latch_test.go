package redisson

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"testing"
)

// calls returns how many scripts the server has run.
func (w *world) calls() (n int) {
	w.Helper()
	text, _ := w.do("INFO", "commandstats").(string)
	for _, m := range regexp.MustCompile(`cmdstat_eval(?:sha)?:calls=(\d+)`).FindAllStringSubmatch(text, -1) {
		calls, _ := strconv.Atoi(m[1])
		n += calls
	}
	return n
}

// TestLatchOnTheWire asserts what Redisson reads and hears.
func TestLatchOnTheWire(t *testing.T) {
	w := newWorld(t)
	ctx, l := t.Context(), w.latch()
	heard := w.hears("redisson_countdownlatch__channel__{n}")
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
	step("Await of none", nil, func() (any, error) { return nil, l.Await(ctx) })
	step("Count of none", 0, func() (any, error) { return l.Count(ctx) })
	step("CountDown of none", 0, func() (any, error) { return l.CountDown(ctx) })
	w.is(nil)
	step("Delete of none", false, func() (any, error) { return l.Delete(ctx) })
	step("Create", true, func() (any, error) { return l.Create(ctx, 2) })
	tells("1")
	w.is("2")
	step("Create again", false, func() (any, error) { return l.Create(ctx, 9) })
	step("CountDown", 1, func() (any, error) { return l.CountDown(ctx) })
	step("Count", 1, func() (any, error) { return l.Count(ctx) })
	step("the last CountDown", 0, func() (any, error) { return l.CountDown(ctx) })
	tells("0")
	w.is(nil)
	step("Create after the end", true, func() (any, error) { return l.Create(ctx, 1) })
	tells("1")
	step("Delete", true, func() (any, error) { return l.Delete(ctx) })
	tells("0")
	w.is(nil)
}

func TestLatchOpens(t *testing.T) {
	w := newWorld(t)
	l, other := w.latch(), w.latch()
	for _, open := range []func() error{
		func() error { _, err := l.CountDown(t.Context()); return err },
		func() error { _, err := l.Delete(t.Context()); return err },
	} {
		if _, err := l.Create(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		given := w.begin(func() error { return other.Await(ctx) })
		waits := []func() error{}
		for range 5 {
			waits = append(waits, w.begin(func() error { return other.Await(t.Context()) }))
		}
		w.subscribed(l.channel)
		cancel()
		if err := given(); !errors.Is(err, context.Canceled) {
			t.Errorf("Await whose context ended returned %v", err)
		}
		if err := open(); err != nil {
			t.Fatal(err)
		}
		for _, end := range waits {
			if err := end(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestLatchPolls: the key is deleted, and nobody is told.
func TestLatchPolls(t *testing.T) {
	w := newWorld(t)
	l := w.latch()
	if _, err := l.Create(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	opened := w.begin(func() error { return l.Await(t.Context()) })
	w.subscribed(l.channel)
	w.do("DEL", "n")
	if err := opened(); err != nil {
		t.Error(err)
	}
}
