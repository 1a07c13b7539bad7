package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast"
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
	line := r.Message
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

// Events and log records report the same.
func TestEventsAndLog(t *testing.T) {
	inWorld(t, func(w *world) {
		var events []string
		add := func(kind string) func(holdfast.Event) {
			return func(e holdfast.Event) { events = append(events, kind+" "+e.Name) }
		}
		var log strings.Builder
		c, _ := w.client(&holdfast.ClientOptions{
			Events: holdfast.Events{
				Acquired: add("acquired"), Waiting: add("waiting"), Lost: add("lost"),
				Released: add("released"),
			},
			Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		})
		other, _ := w.client(&holdfast.ClientOptions{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
		lease := w.acquire(other.Mutex("x", nil))
		time.AfterFunc(time.Second, func() { _ = lease.Release() })
		mine := w.acquire(c.Mutex("x", nil))
		_ = mine.Release()
		mine = w.acquire(c.Mutex("y", nil))
		if err := other.Break(w.ctx, "y", mine.Token()); err != nil {
			t.Fatal(err)
		}
		<-mine.Done()
		synctest.Wait()
		want := []string{"waiting x", "acquired x", "released x", "acquired y", "lost y"}
		if strings.Join(events, ", ") != strings.Join(want, ", ") {
			t.Errorf("events %q, want %q", events, want)
		}
		for _, part := range []string{"holdfast: waiting", "lock=x", "mode=exclusive", "token=",
			"level=WARN msg=\"holdfast: lost\"", "broken by an operator"} {
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

// TestPanickingHook: a panic in a hook is logged. It affects neither the goroutine whose event it
// was nor others.
func TestPanickingHook(t *testing.T) {
	inWorld(t, func(w *world) {
		var log records
		panics := func(holdfast.Event) { panic("a bad hook") }
		c, _ := w.client(&holdfast.ClientOptions{
			Events: holdfast.Events{Waiting: panics, Acquired: panics},
			Logger: logTo(log.add),
		})
		other, _ := w.client(nil)
		l := w.acquire(other.Mutex("x", nil))
		q := w.waiters()
		q.join(w.ctx, c.Mutex("x", nil))
		w.release(l)
		w.release(q.next("it is free"))
		w.free("x", "it is released")
		synctest.Wait()
		for _, part := range []string{"holdfast: a hook panicked event=waiting lock=x panic=a bad hook stack=", "event=acquired", "holdfast: released"} {
			if !strings.Contains(log.String(), part) {
				t.Errorf("the log does not say %q:\n%s", part, &log)
			}
		}
	})
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
		lease := w.acquire(c.Mutex("x", nil))
		if d := w.took(func() {
			w.release(lease)
			if err := <-closed; err != nil {
				t.Errorf("close in a hook: %v", err)
			}
		}); d > time.Second {
			t.Errorf("it took %v", d)
		}
	})
}
