package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

// brokenWatches is a driver whose watches fail, or end as soon as they have begun.
type brokenWatches struct {
	driver.Forward
	t       *testing.T
	begun   int
	present context.Context // of the previous watch
}

func (d *brokenWatches) Watch(ctx context.Context, _ string) (<-chan struct{}, error) {
	if d.begun++; d.begun > 1000 {
		<-ctx.Done() // enough have been counted
		return nil, ctx.Err()
	}
	if d.present != nil && d.present.Err() == nil {
		d.t.Error("a watch has begun and the context of the previous one has not ended")
	}
	d.present = ctx
	if d.begun%2 == 0 {
		return nil, errors.New("no ear is free")
	}
	hints := make(chan struct{})
	close(hints)
	return hints, nil
}

// A watch whose hints fail again and again leaves nothing behind (P9), and asks the store no more
// than polls do.
func TestWatchWithoutHints(t *testing.T) {
	inWorld(t, func(w *world) {
		d := &brokenWatches{Forward: driver.Forward{Driver: w.store.Client()}, t: w.T}
		c, err := holdfast.New(d, &holdfast.ClientOptions{Clock: w.clock})
		if err != nil {
			w.Fatal(err)
		}
		defer c.Close()
		const long = 20 * time.Second
		ctx, cancel := context.WithTimeout(w.ctx, long)
		defer cancel()
		for _, err := range c.Watch(ctx, "a") {
			if err != nil {
				w.Error(err)
			}
		}
		synctest.Wait()
		if most := 4 * int(long/c.Caps().PollInterval()); d.begun > most {
			w.Errorf("in %v it began %d times to listen: more than %d", long, d.begun, most)
		}
	})
}
