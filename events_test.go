package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

// handler is a log handler that calls a function with each record.
type handler struct {
	slog.Handler
	handle func(slog.Record)
}

func logTo(handle func(slog.Record)) *slog.Logger {
	return slog.New(handler{slog.DiscardHandler, handle})
}

func (h handler) Enabled(context.Context, slog.Level) bool { return true }

func (h handler) Handle(_ context.Context, r slog.Record) error {
	h.handle(r)
	return nil
}

// records collects log records as lines.
type records struct {
	mu    sync.Mutex
	lines []string
}

func (l *records) add(r slog.Record) {
	line := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool {
		line += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

func (l *records) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}

// TestEventsAndLog: events and log records report the same.
func TestEventsAndLog(t *testing.T) {
	inWorld(t, func(w *world) {
		var events []string
		add := func(kind string) func(holdfast.Event) {
			return func(e holdfast.Event) { events = append(events, kind+" "+e.Name) }
		}
		var log records
		c, _ := w.client(&holdfast.ClientOptions{
			Events: holdfast.Events{
				Acquired: add("acquired"), Waiting: add("waiting"), Lost: add("lost"), Released: add("released"),
			},
			Logger: logTo(log.add),
		})
		other, _ := w.client(nil)
		lease := w.acquire(other.Mutex("x", nil))
		time.AfterFunc(time.Second, func() { w.release(lease) })
		w.release(w.acquire(c.Mutex("x", nil)))
		mine := w.acquire(c.Mutex("y", nil))
		if err := other.Break(w.ctx, "y", mine.Token()); err != nil {
			t.Fatal(err)
		}
		<-mine.Done()
		synctest.Wait()
		want := "[waiting x acquired x released x acquired y lost y]"
		if got := fmt.Sprint(events); got != want {
			t.Errorf("events %v, want %v", got, want)
		}
		for _, part := range []string{
			"DEBUG holdfast: waiting lock=x mode=exclusive", " holdfast: acquired lock=x mode=exclusive token=", "WARN holdfast: lost lock=y", "broken by an operator",
		} {
			if !strings.Contains(log.String(), part) {
				t.Errorf("the log does not say %q:\n%s", part, &log)
			}
		}
	})
}

// TestBlockingHook: while a hook or a log handler blocks, leases are renewed, lost leases end in
// time (P2), names are taken and released, and contexts end.
func TestBlockingHook(t *testing.T) {
	for name, options := range map[string]func(block func()) *holdfast.ClientOptions{
		"a hook": func(block func()) *holdfast.ClientOptions {
			return &holdfast.ClientOptions{Events: holdfast.Events{Lost: func(holdfast.Event) { block() }}}
		},
		"a log handler": func(block func()) *holdfast.ClientOptions {
			return &holdfast.ClientOptions{Logger: logTo(func(slog.Record) { block() })}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				blocked := make(chan struct{})
				defer close(blocked)
				c, _ := w.client(options(func() { <-blocked }))
				long := w.acquire(c.Mutex("long", &holdfast.Options{TTL: 6 * time.Second}))
				for range 2 {
					short := w.acquire(c.Mutex("short", &holdfast.Options{TTL: time.Second, RenewEvery: -1}))
					ctx, cancel := short.WithContext(w.ctx)
					defer cancel()
					if d := w.took(func() { <-short.Done() }); d != 980*time.Millisecond {
						t.Errorf("P2: Done was closed after %v", d)
					}
					synctest.Wait()
					if !errors.Is(context.Cause(ctx), holdfast.ErrLost) {
						t.Errorf("P2: the context's cause is %v", context.Cause(ctx))
					}
					_ = short.Release()
				}
				time.Sleep(time.Hour)
				if err := long.Err(); err != nil {
					t.Errorf("another lease is lost: %v", err)
				}
				w.release(long)
				w.free("long", "it is released")
			})
		})
	}
}

// TestPanics: a panic in a hook, in Trace or in the function that Trace returns is logged, and affects neither the
// goroutine whose event it was nor others. Trace may return nothing.
func TestPanics(t *testing.T) {
	type after = func(holdfast.Outcome)
	panics := func(holdfast.Event) { panic("bad") }
	for name, o := range map[string]holdfast.ClientOptions{
		"a hook panicked event=acquired": {Events: holdfast.Events{Acquired: panics}},
		"a hook panicked event=waiting":  {Events: holdfast.Events{Waiting: panics}},
		"a trace panicked event=acquire": {Trace: func(context.Context, holdfast.Attempt) (context.Context, after) { panic("bad") }},
		"a trace panicked event=acquire ": {Trace: func(context.Context, holdfast.Attempt) (context.Context, after) {
			return nil, func(holdfast.Outcome) { panic("bad") }
		}},
		"": {Trace: func(context.Context, holdfast.Attempt) (context.Context, after) { return nil, nil }},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				var log records
				o.Logger = logTo(log.add)
				c, _ := w.client(&o)
				other, _ := w.client(nil)
				l, q := w.acquire(other.Mutex("x", nil)), w.waiters()
				q.join(w.ctx, c.Mutex("x", nil))
				w.release(l)
				w.release(q.next("it is free"))
				w.free("x", "it is released")
				synctest.Wait()
				want := "holdfast: " + strings.TrimSpace(name) + " lock=x panic=bad stack="
				if text := log.String(); strings.Contains(text, want) != (name != "") || !strings.Contains(text, "holdfast: released") {
					t.Errorf("the log does not say %q:\n%s", want, text)
				}
			})
		})
	}
}

// TestDroppedEvents: a hook that is too slow misses events and learns how many. The queue does not
// grow without bound.
func TestDroppedEvents(t *testing.T) {
	inWorld(t, func(w *world) {
		blocked := make(chan struct{})
		var told, dropped int
		c, _ := w.client(&holdfast.ClientOptions{Events: holdfast.Events{Released: func(e holdfast.Event) {
			<-blocked
			told++
			dropped += e.Dropped
		}}})
		const holds = 40_000
		lock := c.Mutex("x", nil)
		for range holds {
			w.release(w.acquire(lock))
		}
		close(blocked)
		synctest.Wait()
		if told < 10_000 || told > 20_000 {
			t.Errorf("%d events were queued", told)
		}
		w.release(w.acquire(lock)) // its events count the dropped ones
		synctest.Wait()
		if told+dropped != holds+1 || dropped == 0 {
			t.Errorf("%d events were delivered and %d dropped, of %d", told, dropped, holds+1)
		}
	})
}

// TestCloseWaitsForHooks: Close returns after all events have been delivered, unless a hook takes
// too long.
func TestCloseWaitsForHooks(t *testing.T) {
	for takes, want := range map[time.Duration]time.Duration{
		100 * time.Millisecond: 300 * time.Millisecond, // three events
		time.Hour:              time.Second,
	} {
		inWorld(t, func(w *world) {
			var told []string
			add := func(e holdfast.Event) {
				time.Sleep(takes)
				told = append(told, e.Name)
			}
			c, _ := w.client(&holdfast.ClientOptions{Events: holdfast.Events{Acquired: add, Released: add}})
			lease := w.acquire(c.Mutex("x", nil))
			w.acquire(c.Mutex("y", nil))
			if d := w.took(func() {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}); d < want {
				t.Errorf("Close took %v, want at least %v", d, want)
			} else if want == time.Second && d != want {
				t.Errorf("Close took %v, want %v", d, want)
			} else if want < time.Second && len(told) != 4 {
				t.Errorf("Close returned when %q had been delivered", told)
			}
			if err := lease.Err(); !errors.Is(err, holdfast.ErrReleased) {
				t.Error(err)
			}
			time.Sleep(5 * takes) // the hooks end
		})
	}
}

// TestReleasedHookCloses: a hook may close the client, although Close then waits for the hook.
func TestReleasedHookCloses(t *testing.T) {
	inWorld(t, func(w *world) {
		var c *holdfast.Client
		closed := make(chan error)
		c, _ = w.client(&holdfast.ClientOptions{Events: holdfast.Events{Released: func(holdfast.Event) { closed <- c.Close() }}})
		w.release(w.acquire(c.Mutex("x", nil)))
		var err error
		if d := w.took(func() { err = <-closed }); err != nil || d > time.Second {
			t.Errorf("close in a hook: %v after %v", err, d)
		}
	})
}

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
			f.try = func(context.Context, driver.Request) (driver.Grant, error) { panic("a bad driver") }
		})
		func() {
			defer func() { _ = recover() }()
			_, _ = c.Mutex("y", nil).Acquire(w.ctx)
		}()
		_, _ = c.Mutex("", nil).Acquire(w.ctx)
		r.expect(w, "7: exclusive y, try false", "7: the driver panicked")
	})
}
