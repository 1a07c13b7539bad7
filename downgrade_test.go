package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/wrap"
)

func TestDowngrade(t *testing.T) {
	inWorld(t, func(w *world) {
		c, _ := w.client(nil)
		d, _ := w.client(nil)
		rw := c.RWMutex("x", nil)
		writer := w.acquire(rw.Write)
		token := writer.Token()
		again, _ := writer.Reenter()
		if err := writer.Downgrade(w.ctx); err == nil {
			t.Error("downgraded under another lease that relies on holding the name alone")
		}
		_ = again.Release()
		if err := writer.Downgrade(w.ctx); err != nil {
			t.Fatal(err)
		}
		if writer.Mode() != holdfast.Shared || writer.Token() < token {
			t.Errorf("P3: %v, token %d after %d", writer.Mode(), writer.Token(), token)
		}
		reader, err := d.RWMutex("x", nil).Read.TryAcquire(w.ctx)
		if err != nil {
			t.Errorf("a reader beside the downgraded writer: %v", err)
		}
		if _, err := d.Mutex("x", nil).TryAcquire(w.ctx); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("P1: a writer beside it: %v", err)
		}
		time.Sleep(time.Hour)
		if writer.Err() != nil || reader.Err() != nil {
			t.Errorf("after an hour: %v, %v", writer.Err(), reader.Err())
		}
		if err := errors.Join(reader.Release(), writer.Release()); err != nil {
			t.Error(err)
		}
	})
}

// downer overrides Downgrade.
type downer struct {
	*faulty
	down func(context.Context, driver.Downgrader, driver.Grant) (driver.Grant, error)
}

func (d *downer) Downgrade(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	return d.down(ctx, d.faulty.Forward, g)
}

func (w *world) downer() (*holdfast.Client, *downer) {
	f := &downer{faulty: &faulty{Forward: wrap.Forward{Driver: w.store.Client()}}}
	return w.clientOf(f, nil), f
}

// TestUncertainDowngrade: the store has downgraded the hold, and the answer is lost. From the sending on
// no lease counts as exclusive (P1), and the sequencer of a lease that counts as shared is current. A second
// Downgrade ends that.
func TestUncertainDowngrade(t *testing.T) {
	for _, done := range []bool{true, false} {
		inWorld(t, func(w *world) {
			c, f := w.downer()
			f.down = func(ctx context.Context, d driver.Downgrader, g driver.Grant) (driver.Grant, error) {
				if done {
					_, _ = d.Downgrade(ctx, g)
				}
				return driver.Grant{}, driver.Uncertain(errStore)
			}
			lease := w.acquire(c.RWMutex("x", nil).Write)
			before := lease.Sequencer()
			if err := lease.Downgrade(w.ctx); !errors.Is(err, errStore) || lease.Mode() != holdfast.Shared {
				t.Errorf("P1: %v, and the lease is %v", err, lease.Mode())
			}
			ctx, cancel := lease.WithContext(w.ctx)
			defer cancel()
			if _, err := c.Mutex("x", &holdfast.Options{Reentrant: true}).Acquire(ctx); !errors.Is(err, holdfast.ErrDeadlock) {
				t.Errorf("P1: a mutex joins a hold that counts as shared: %v", err)
			}
			if err := c.CheckSequencer(w.ctx, lease.Sequencer()); err != nil || lease.Sequencer() == before {
				t.Errorf("the sequencer of a lease that counts as shared: %v", err)
			}
			f.down = func(ctx context.Context, d driver.Downgrader, g driver.Grant) (driver.Grant, error) {
				return d.Downgrade(ctx, g)
			}
			if err := lease.Downgrade(w.ctx); err != nil {
				t.Error(err)
			}
			if err := c.CheckSequencer(w.ctx, before); !errors.Is(err, holdfast.ErrNotHeld) {
				t.Errorf("the exclusive sequencer of a shared lease: %v", err)
			}
		})
	}
}
