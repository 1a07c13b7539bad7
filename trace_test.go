package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

// attemptKey is the key of an attempt's number in the context that a tracer returns.
type attemptKey struct{}

// tracer numbers the attempts of a client and notes what it is told, as lines.
type tracer struct {
	mu       sync.Mutex
	attempts int
	lines    []string
}

func (r *tracer) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

// begin returns the number of a new attempt.
func (r *tracer) begin() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attempts++
	return r.attempts
}

func (r *tracer) options() *holdfast.ClientOptions {
	told := func(what string) func(holdfast.Event) {
		return func(e holdfast.Event) {
			r.note("%v heard: %s after %v, %v ago", e.Context.Value(attemptKey{}), what, e.After, time.Since(e.At))
		}
	}
	return &holdfast.ClientOptions{
		Trace: func(ctx context.Context, a holdfast.Attempt) (context.Context, func(holdfast.Outcome)) {
			n := r.begin()
			r.note("%d: %v %s, try %v", n, a.Mode, a.Name, a.Try)
			return context.WithValue(ctx, attemptKey{}, n), func(o holdfast.Outcome) {
				switch {
				case (o.Lease == nil) == (o.Err == nil):
					r.note("%d: lease %v and error %v", n, o.Lease, o.Err)
				case errors.Is(o.Err, holdfast.ErrHeld):
					r.note("%d: held", n)
				case o.Err != nil:
					r.note("%d: %v", n, o.Err)
				default:
					r.note("%d: got it, source %v", n, o.Source)
				}
			}
		},
		Events: holdfast.Events{
			Acquired: told("acquired"), Waiting: told("waiting"), InDoubt: told("in doubt"),
			Recovered: told("recovered"), Expiring: told("expiring"), Lost: told("lost"), Released: told("released"),
		},
	}
}

// expect fails the test unless these are the lines since the last call: of each attempt first those of
// its own goroutine, then those of the hooks.
func (r *tracer) expect(w *world, want ...string) {
	w.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	bySource := func(a, b string) int {
		return strings.Compare(strings.SplitN(a, ":", 2)[0], strings.SplitN(b, ":", 2)[0])
	}
	slices.SortStableFunc(r.lines, bySource)
	if !slices.Equal(r.lines, want) {
		w.Errorf("the tracer was told\n  %s\nwant\n  %s", strings.Join(r.lines, "\n  "), strings.Join(want, "\n  "))
	}
	r.lines = nil
}

// TestTraceOfAnAcquire: Trace is told of each acquire's end, and where the hold comes from.
func TestTraceOfAnAcquire(t *testing.T) {
	withBlocks(t, func(w *world) {
		var r tracer
		c, f := w.client(r.options())
		other, _ := w.client(nil)
		x, q := c.Mutex("x", nil), w.waiters()

		theirs := w.acquire(other.Mutex("x", nil))
		q.join(w.ctx, x)
		q.join(w.ctx, x)
		if _, err := x.TryAcquire(w.ctx); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("a try: %v", err)
		}
		ctx, cancel := context.WithTimeoutCause(w.ctx, time.Millisecond, context.DeadlineExceeded)
		defer cancel()
		if _, err := x.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a short wait: %v", err)
		}
		time.Sleep(2 * time.Second) // the first asks for a block of tokens at its next poll
		w.release(theirs)
		w.release(q.next("it is released"))
		w.release(q.next("it is handed over"))
		r.expect(w,
			"1: exclusive x, try false", "1: got it, source store", "1 heard: waiting after 0s, 0s ago",
			"1 heard: acquired after 2.001s, 0s ago", "1 heard: released after 0s, 0s ago",
			"2: exclusive x, try false", "2: got it, source local",
			"2 heard: acquired after 2.001s, 0s ago", "2 heard: released after 0s, 0s ago",
			"3: exclusive x, try true", "3: held", "4: exclusive x, try false", "4: held")

		again := c.Mutex("x", &holdfast.Options{Reentrant: true})
		if err := x.Do(w.ctx, func(ctx context.Context, _ *holdfast.Lease) error {
			return again.Do(ctx, func(context.Context, *holdfast.Lease) error { return nil })
		}); err != nil {
			t.Error(err)
		}
		r.expect(w, "5: exclusive x, try false", "5: got it, source free", "5 heard: acquired after 0s, 0s ago",
			"5 heard: released after 0s, 0s ago",
			"6: exclusive x, try false", "6: got it, source reentrant")

		f.set(func() {
			f.try = func(context.Context, driver.Driver, driver.Request) (driver.Grant, error) { panic("a bad driver") }
		})
		func() {
			defer func() { _ = recover() }()
			_, _ = c.Mutex("y", nil).Acquire(w.ctx)
		}()
		_, _ = c.Mutex("", nil).Acquire(w.ctx)
		r.expect(w, "7: exclusive y, try false", "7: the driver panicked")
	})
}

// TestTracePanics: a panic in Trace, or in the function that it returns, is logged, and the lock goes on.
// Trace may return nothing.
func TestTracePanics(t *testing.T) {
	type after = func(holdfast.Outcome)
	for name, trace := range map[string]func(context.Context, holdfast.Attempt) (context.Context, after){
		"before": func(context.Context, holdfast.Attempt) (context.Context, after) { panic("a bad tracer") },
		"after": func(context.Context, holdfast.Attempt) (context.Context, after) {
			return nil, func(holdfast.Outcome) { panic("a bad tracer") }
		},
		"nothing": func(context.Context, holdfast.Attempt) (context.Context, after) { return nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				var log records
				c, _ := w.client(&holdfast.ClientOptions{Trace: trace, Logger: logTo(log.add)})
				w.release(w.acquire(c.Mutex("x", nil)))
				w.free("x", "it is released")
				synctest.Wait()
				const said = "holdfast: a trace panicked event=acquire lock=x panic=a bad tracer"
				if strings.Contains(log.String(), said) != (name != "nothing") {
					t.Errorf("the log says:\n%s", &log)
				}
			})
		})
	}
}
