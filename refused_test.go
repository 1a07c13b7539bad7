package holdfast_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/wrap"
	"github.com/holdfastlock/holdfast/memlock"
)

// refusing is a store that is queued in at once, and refuses requests without a look at the store.
type refusing struct {
	wrap.Forward
	err       error
	withdrawn atomic.Int32
}

func (r *refusing) Contended(string) bool { return true }

func (r *refusing) Enqueue(context.Context, driver.Request) (driver.Grant, error) {
	return driver.Grant{}, r.err
}

func (r *refusing) Release(ctx context.Context, g []driver.Grant) []error {
	r.withdrawn.Add(int32(len(g)))
	return r.Forward.Release(ctx, g)
}

// TestRefusedIsNotWithdrawn: P10: what the store has certainly not done is not withdrawn, also if the first request
// asks for a place in the queue. An uncertain outcome is.
func TestRefusedIsNotWithdrawn(t *testing.T) {
	for err, want := range map[error]int32{
		driver.ErrUnsupported:      0,
		errors.New("a bad name"):   0,
		driver.Uncertain(errStore): 1,
	} {
		r := &refusing{Forward: wrap.Forward{Driver: memlock.NewStore(nil).Client()}, err: err}
		c, e := holdfast.New(r, nil)
		if e != nil {
			t.Fatal(e)
		}
		if _, e := c.Mutex("x", nil).Acquire(t.Context()); !errors.Is(e, err) {
			t.Errorf("Acquire: %v, want %v", e, err)
		}
		if e := c.Close(); e != nil { // it waits for withdrawals
			t.Error(e)
		}
		if n := r.withdrawn.Load(); n != want {
			t.Errorf("after %q there were %d withdrawals, want %d", err, n, want)
		}
	}
}
