package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/memlock"
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

// TestPanickingHookOfOneReader: readers that share a hold keep it when the hook panics.
func TestPanickingHookOfOneReader(t *testing.T) {
	inWorld(t, func(w *world) {
		c, _ := w.client(&holdfast.ClientOptions{
			Logger: slog.New(slog.DiscardHandler),
			Events: holdfast.Events{Acquired: func(e holdfast.Event) {
				if e.Mode == holdfast.Shared {
					panic("a bad hook")
				}
			}},
		})
		writer, q := w.acquire(c.Mutex("x", nil)), w.waiters()
		q.join(w.ctx, c.RWMutex("x", nil).Read)
		q.join(w.ctx, c.RWMutex("x", nil).Read)
		w.release(writer)
		for range 2 {
			lease := q.next("the writer has stopped")
			synctest.Wait()
			if err := lease.Err(); err != nil {
				t.Errorf("P2: a reader's lease: %v", err)
			}
			defer w.release(lease)
		}
	})
}

// TestPanickingLogHandler: a log handler that panics delays neither hooks nor later records.
func TestPanickingLogHandler(t *testing.T) {
	var log records
	standard := slog.Default()
	slog.SetDefault(logTo(log.add))
	defer slog.SetDefault(standard)
	inWorld(t, func(w *world) {
		var told, written int
		c, _ := w.client(&holdfast.ClientOptions{
			Events: holdfast.Events{Released: func(holdfast.Event) { told++ }},
			Logger: logTo(func(slog.Record) { written++; panic("a bad handler") }),
		})
		w.release(w.acquire(c.Mutex("x", nil)))
		w.release(w.acquire(c.Mutex("x", nil)))
		synctest.Wait()
		if told != 2 || written != 4 {
			t.Errorf("%d events were delivered and %d logged, want 2 and 4", told, written)
		}
		if n := strings.Count(log.String(), "holdfast: a log handler panicked"); n != 4 {
			t.Errorf("%d of 4 panics were logged:\n%s", n, &log)
		}
	})
}

// TestHookEndsGoroutine: after a hook that ends its goroutine, as FailNow of package testing does,
// later events are delivered.
func TestHookEndsGoroutine(t *testing.T) {
	inWorld(t, func(w *world) {
		released := 0
		c, _ := w.client(&holdfast.ClientOptions{Events: holdfast.Events{
			Acquired: func(holdfast.Event) { runtime.Goexit() },
			Released: func(holdfast.Event) { released++ },
		}})
		for range 3 {
			w.release(w.acquire(c.Mutex("x", nil)))
		}
		synctest.Wait()
		if released != 3 {
			t.Errorf("%d of 3 releases were delivered", released)
		}
	})
}

// TestEventsInOrder: each hold's beginning is delivered before its end, once, however soon the end
// comes. Close waits until all events are delivered.
func TestEventsInOrder(t *testing.T) {
	var mu sync.Mutex
	state := map[holdfast.Token]string{}
	told := func(from, to string) func(holdfast.Event) {
		return func(e holdfast.Event) {
			mu.Lock()
			defer mu.Unlock()
			if state[e.Token] != from {
				t.Errorf("hold %d was %q when %q was delivered", e.Token, state[e.Token], to)
			}
			state[e.Token] = to
		}
	}
	c, err := holdfast.New(memlock.NewStore(&memlock.Options{TokenBlock: 16}).Client(),
		&holdfast.ClientOptions{Events: holdfast.Events{
			Acquired: told("", "acquired"), Released: told("acquired", "over"), Lost: told("acquired", "over"),
		}})
	if err != nil {
		t.Fatal(err)
	}
	const workers, each = 8, 200
	var group sync.WaitGroup
	for i := range workers {
		group.Go(func() {
			for range each {
				lease, err := c.Mutex("x", nil).Acquire(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if i == 0 {
					_ = c.Break(t.Context(), "x", lease.Token())
				}
				_ = lease.Release()
			}
		})
	}
	group.Wait()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	for token, last := range state {
		if last != "over" {
			t.Errorf("hold %d: %s, and no end was delivered", token, last)
		}
	}
	if len(state) != workers*each {
		t.Errorf("%d of %d holds were delivered", len(state), workers*each)
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
