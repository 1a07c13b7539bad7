package holdfast_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

// A driver that panics in a renewal in the background ends neither the process nor the renewals:
// the lease is in doubt, as after any error, and the next attempt renews it.
func TestPanicInRenew(t *testing.T) {
	inWorld(t, func(w *world) {
		var log strings.Builder
		var doubts, recoveries atomic.Int32
		c, f := w.client(&holdfast.ClientOptions{
			Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError})),
			Events: holdfast.Events{
				InDoubt: func(e holdfast.Event) {
					if doubts.Add(1) == 1 && !strings.Contains(e.Err.Error(), "panicked: driver") {
						t.Errorf("in doubt for %v", e.Err)
					}
				},
				Recovered: func(holdfast.Event) { recoveries.Add(1) },
			},
		})
		f.set(func() {
			f.renew = func(ctx context.Context, d driver.Driver, g []driver.Grant) []driver.Renewal {
				if f.renewals.Load() == 1 {
					panic("driver")
				}
				return d.Renew(ctx, g)
			}
		})
		lease := w.acquire(c.Mutex("x", nil))
		time.Sleep(5 * time.Minute)
		if err := lease.Err(); err != nil || doubts.Load() != 1 || recoveries.Load() != 1 {
			t.Errorf("P2: %v, %d times in doubt and %d times recovered",
				err, doubts.Load(), recoveries.Load())
		}
		if !strings.Contains(log.String(), "the driver panicked") ||
			!strings.Contains(log.String(), "method=Renew") {
			t.Errorf("the log says %q", log.String())
		}
		f.set(func() {
			f.renew = func(context.Context, driver.Driver, []driver.Grant) []driver.Renewal { panic("for ever") }
		})
		time.Sleep(time.Minute)
		if err := lease.Err(); err == nil || !strings.Contains(err.Error(), "for ever") {
			t.Errorf("P2: after a minute without renewal: %v", err)
		}
		if took := w.took(func() { _ = c.Close() }); took > 0 {
			t.Errorf("Close waits %v for renewals that are over", took)
		}
	})
}

// A driver that panics in Shard costs no lease.
func TestPanicInShard(t *testing.T) {
	inWorld(t, func(w *world) {
		_, f := w.client(nil)
		f.shard = func(driver.Request) string { panic("driver") }
		c, err := holdfast.New(f, &holdfast.ClientOptions{Clock: w.clock, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		lease := w.acquire(c.Mutex("x", nil))
		time.Sleep(time.Minute)
		if err := lease.Err(); err != nil {
			t.Errorf("P2: %v", err)
		}
	})
}

// A log handler that blocks on the record of a driver's panic delays no withdrawal.
func TestPanicIsLoggedAside(t *testing.T) {
	inWorld(t, func(w *world) {
		blocked := make(chan struct{})
		c, f := w.client(&holdfast.ClientOptions{Logger: slog.New(blockingHandler{slog.DiscardHandler, blocked})})
		f.set(func() {
			f.release = func(ctx context.Context, d driver.Driver, g []driver.Grant) []error {
				switch f.releases.Load() {
				case 1:
					<-ctx.Done() // so that it is withdrawn
					return []error{ctx.Err()}
				case 2:
					panic("driver")
				}
				return d.Release(ctx, g)
			}
		})
		lease := w.acquire(c.Mutex("x", nil))
		_ = lease.Release()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		w.free("x", "P6: the log handler blocks")
		close(blocked)
	})
}

// blockingHandler blocks on errors until the channel is closed.
type blockingHandler struct {
	slog.Handler
	until chan struct{}
}

func (h blockingHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h blockingHandler) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		<-h.until
	}
	return nil
}
