package holdfast_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/wrap"
)

// brokenWatches is a driver whose watches fail, or end as soon as they have begun.
type brokenWatches struct {
	wrap.Forward
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
		d := &brokenWatches{Forward: wrap.Forward{Driver: w.store.Client()}, t: w.T}
		c := w.clientOf(d, nil)
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

// TestWatch: a watch yields the present holders, then each change of them, and nothing else.
func TestWatch(t *testing.T) {
	inWorld(t, func(w *world) {
		c, _ := w.client(nil)
		watcher, _ := w.client(nil)
		ctx, cancel := context.WithCancel(w.ctx)
		var seen []int
		done := make(chan struct{})
		go func() {
			defer close(done)
			for info, err := range watcher.Watch(ctx, "n") {
				if err != nil {
					w.Error(err)
				}
				seen = append(seen, len(info.Holders))
			}
		}()
		synctest.Wait()
		read := c.RWMutex("n", nil).Read
		var leases []*holdfast.Lease
		for range 2 {
			leases = append(leases, w.acquire(read))
			synctest.Wait()
		}
		time.Sleep(time.Minute) // renewals are no changes
		for _, lease := range leases {
			w.release(lease)
			synctest.Wait()
		}
		cancel()
		<-done
		if want := []int{0, 1, 2, 1, 0}; !slices.Equal(seen, want) {
			w.Errorf("holders seen: %v, want %v", seen, want)
		}
	})
}
