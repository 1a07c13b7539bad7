package server

import (
	"context"
	"sync"
)

// sync waits until the mirror shows all that had happened in the cell when it was called.
func (f *front) sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	r := f.rounds.join()
	select {
	case <-r.over:
	case <-ctx.Done():
		return ended(ctx)
	case <-f.life.Done(): // nobody asks any more
		return ofStore(ctx, f.life.Err())
	}
	if r.err != nil {
		return ofStore(ctx, r.err)
	}
	return ofStore(ctx, f.mirror.reach(ctx, r.rev))
}

// rounds ask etcd how far the cell is, for all calls that want to know it at a time. Ten thousand calls that asked each
// for itself would hold ten thousand stacks as deep as etcd's.
type rounds struct {
	mu   sync.Mutex
	next *round        // of those who have come since the last one began; nil: nobody has
	wake chan struct{} // there is a next one
}

// round is a question that is asked once.
type round struct {
	over chan struct{} // closed when it has been answered, or cannot be
	rev  int64         // the cell was as far when the round began, or a little later
	err  error
}

// join takes part in the next round.
func (r *rounds) join() *round {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = &round{over: make(chan struct{})}
		r.wake <- struct{}{}
	}
	return r.next
}

// ask asks one question after the other, until the member stops.
func (f *front) ask() {
	r := &f.rounds
	for {
		select {
		case <-r.wake:
		case <-f.life.Done():
			return
		}
		r.mu.Lock()
		now := r.next
		r.next = nil
		r.mu.Unlock()
		ctx, cancel := context.WithTimeout(f.life, within)
		now.rev, now.err = f.store.Reached(ctx)
		cancel()
		close(now.over)
	}
}
