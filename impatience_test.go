package holdfast_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/engine"
)

// queued returns the owners of the places in the store's queue.
func (w *world) queued(name string) (owners []string) {
	w.Helper()
	c, _ := w.client(nil)
	info, err := c.Inspect(w.ctx, name)
	if err != nil {
		w.Fatal(err)
	}
	for _, one := range info.Waiters {
		owners = append(owners, one.Owner)
	}
	return owners
}

// impatiently lets callers wait for a held lock for 5 ms, one after the other. From the second on
// their place lingers, and from the third on a request outlives its caller.
func (w *world) impatiently(callers int, l *holdfast.Lock) {
	w.Helper()
	for range callers {
		ctx, cancel := context.WithTimeout(w.ctx, 5*time.Millisecond)
		if _, err := l.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			w.Fatalf("an acquire of a held name: %v", err)
		}
		cancel()
	}
}

// P6, P8: where callers give up after milliseconds, again and again, the place stays in the
// queue from one to the next; when none comes any more it is withdrawn.
func TestImpatientCallersInheritThePlace(t *testing.T) {
	inWorld(t, func(w *world) {
		a, _ := w.client(nil)
		b, _ := w.client(nil)
		lease := w.acquire(a.Mutex("x", nil))
		giveUp := func() {
			ctx, cancel := context.WithTimeout(w.ctx, 5*time.Millisecond)
			defer cancel()
			if _, err := b.Mutex("x", nil).Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("an acquire of a held name: %v", err)
			}
		}
		giveUp()
		synctest.Wait()
		if left := w.queued("x"); len(left) != 0 {
			t.Fatalf("P6: the first that gave up has left %v", left)
		}
		giveUp()
		first := w.queued("x")
		if len(first) != 1 {
			t.Fatalf("the second that gave up soon has left the places %v, want one", first)
		}
		for range 200 { // longer than a poll, so it is confirmed too
			giveUp()
			if now := w.queued("x"); len(now) != 1 || now[0] != first[0] {
				t.Fatalf("P8: the place of %v has become %v", first, now)
			}
		}
		time.Sleep(engine.LingerFor)
		synctest.Wait()
		if left := w.queued("x"); len(left) != 0 {
			t.Fatalf("P6: without a caller %v stays in the queue", left)
		}
		giveUp()
		giveUp()
		if err := lease.Release(); err != nil { // the place gets it
			t.Fatal(err)
		}
		got := w.acquire(b.Mutex("x", nil))
		if got.Token() != lease.Token()+1 {
			t.Errorf("the next caller has token %d after %d: it did not inherit the hold", got.Token(), lease.Token())
		}
		if err := got.Release(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.free("x", "after impatience")
	})
}

// Suppose callers give up after 3 ms, and the store answers after 4. Or it is so busy that it answers
// after 40 ms, and its driver notices 30 ms after its context has ended that no request was sent.
func TestRequestsOutliveImpatientCallers(t *testing.T) {
	for name, busy := range map[string]struct {
		answers, notices time.Duration
		err              error
	}{
		"slow":          {answers: 4 * time.Millisecond, err: driver.ErrUncertain},
		"no connection": {answers: 40 * time.Millisecond, notices: 30 * time.Millisecond, err: context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				b, f := w.client(nil)
				f.set(func() {
					slow := func(ctx context.Context, f func(context.Context) (driver.Grant, error)) (driver.Grant, error) {
						select {
						case <-time.After(busy.answers):
						case <-ctx.Done():
							time.Sleep(busy.notices)
							return driver.Grant{}, busy.err
						}
						return f(ctx)
					}
					f.try = func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
						return slow(ctx, func(ctx context.Context) (driver.Grant, error) { return d.Try(ctx, r) })
					}
					f.enqueue = func(ctx context.Context, q driver.Queuer, r driver.Request) (driver.Grant, error) {
						return slow(ctx, func(ctx context.Context) (driver.Grant, error) { return q.Enqueue(ctx, r) })
					}
				})
				var got *holdfast.Lease
				for attempt := 0; got == nil; attempt++ {
					if attempt == 20 {
						t.Fatal("none of twenty callers has got a free name")
					}
					ctx, cancel := context.WithTimeout(w.ctx, 3*time.Millisecond)
					got, _ = b.Mutex("x", nil).Acquire(ctx)
					cancel()
				}
				if err := got.Release(); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				w.free("x", "after impatience")
			})
		})
	}
}

// lastMoment is a context whose end somebody hears of first: atEnd is called once, on the goroutine that
// asks for the error.
type lastMoment struct {
	context.Context
	atEnd func()
}

func (l *lastMoment) Err() error {
	err := l.Context.Err()
	if f := l.atEnd; err != nil && f != nil {
		l.atEnd = nil
		f()
	}
	return err
}

// P7: Suppose a caller gives up, and the store answers its request before the engine knows that the
// request goes on for the next one. The next caller gets the answer, or asks again. It does not wait
// for an answer that has been there already.
func TestAnswerAtTheLastMoment(t *testing.T) {
	inWorld(t, func(w *world) {
		b, f := w.client(nil)
		a, _ := w.client(nil)
		lease := w.acquire(a.Mutex("x", nil))
		for range 2 { // so that requests outlive their callers
			ctx, cancel := context.WithTimeout(w.ctx, 5*time.Millisecond)
			_, _ = b.Mutex("x", nil).Acquire(ctx)
			cancel()
		}
		if err := lease.Release(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		time.Sleep(2 * engine.LingerFor)
		answer := make(chan struct{})
		f.set(func() {
			f.enqueue = func(ctx context.Context, q driver.Queuer, r driver.Request) (driver.Grant, error) {
				<-answer
				return q.Enqueue(ctx, r)
			}
		})
		ctx, cancel := context.WithTimeout(w.ctx, 5*time.Millisecond)
		defer cancel()
		last := &lastMoment{Context: ctx, atEnd: func() {
			close(answer)
			synctest.Wait()
		}}
		got, err := b.Mutex("x", nil).Acquire(last)
		if last.atEnd != nil {
			t.Fatal("the context has not ended while the request was under way")
		}
		if err != nil {
			patient, cancel := context.WithTimeout(w.ctx, time.Minute)
			defer cancel()
			if got, err = b.Mutex("x", nil).Acquire(patient); err != nil {
				t.Fatalf("the next caller: %v", err)
			}
		}
		if err := got.Release(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.free("x", "after impatience")
	})
}

// A driver that panics in a request that may outlive its caller does not end the process.
func TestPanicInOutlivingRequest(t *testing.T) {
	inWorld(t, func(w *world) {
		var log strings.Builder
		a, _ := w.client(nil)
		b, f := w.client(&holdfast.ClientOptions{
			Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError})),
		})
		lease := w.acquire(a.Mutex("x", nil))
		giveUp := func() {
			ctx, cancel := context.WithTimeout(w.ctx, 5*time.Millisecond)
			defer cancel()
			_, _ = b.Mutex("x", nil).Acquire(ctx)
		}
		giveUp()
		f.set(func() {
			f.wait = func(context.Context, driver.Queuer, driver.Request) (driver.Grant, error) { panic("driver") }
		})
		giveUp()
		giveUp()
		f.set(func() { f.wait = nil })
		if err := lease.Release(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if !strings.Contains(log.String(), "the driver panicked") {
			t.Errorf("the log says %q", log.String())
		}
		w.free("x", "P6: after panics")
	})
}
