package cell

import (
	"context"
	"sync"
)

// flight makes one call for several that want the same at the same time. Who comes while a call is
// under way waits for the next one: what that one does has begun before.
type flight struct {
	mu   sync.Mutex
	busy bool
	next *flown // for those that came while a call was under way; nil: none did
}

// flown is a call and its outcome.
type flown struct {
	over chan struct{}
	err  error
}

// do returns the outcome of a call that has begun after do was called.
func (f *flight) do(ctx context.Context, call func() error) error {
	f.mu.Lock()
	if f.next == nil {
		f.next = &flown{over: make(chan struct{})}
	}
	mine := f.next
	if !f.busy {
		f.busy = true
		go f.run(call)
	}
	f.mu.Unlock()
	select {
	case <-mine.over:
		return mine.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run makes calls for as long as somebody wants one.
func (f *flight) run(call func() error) {
	for {
		f.mu.Lock()
		this := f.next
		f.next = nil
		if this == nil {
			f.busy = false
			f.mu.Unlock()
			return
		}
		f.mu.Unlock()
		this.err = call()
		close(this.over)
	}
}
