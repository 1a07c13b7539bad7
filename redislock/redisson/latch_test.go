package redisson

import (
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
