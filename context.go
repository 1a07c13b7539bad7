package holdfast

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfastlock/holdfast/internal/engine"
)

// leaseContext is a context that ends with its lease.
type leaseContext struct {
	cancel     context.CancelCauseFunc
	prev, next *leaseContext
}

// cancellation is the contexts of a lease that is over, and the reason.
type cancellation struct {
	contexts *leaseContext
	err      error
}

// cancellations must be run without the client's mutex.
type cancellations []cancellation

func (cs cancellations) run() {
	for _, one := range cs {
		for entry := one.contexts; entry != nil; entry = entry.next {
			entry.cancel(one.err)
		}
	}
}

// heldKey is the key under which a context carries its leases.
type heldKey struct{}

// heldList is the leases that a context carries, the innermost first.
type heldList struct {
	lease *Lease
	outer *heldList
}

// WithContext returns a context that ends when the lease does; its cause is then the *LostError or
// ErrReleased. It also ends with parent, for parent's cause, and by the CancelFunc
// (context.Canceled).
//
// It carries the hold: a nested acquire of the same name under it returns ErrDeadlock, or joins the
// hold with Options.Reentrant. So a goroutine started under it counts as the holder. The CancelFunc
// frees the context's resources; the lease goes on.
func (le *Lease) WithContext(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	outer, _ := parent.Value(heldKey{}).(*heldList)
	held := context.WithValue(ctx, heldKey{}, &heldList{le, outer})
	return held, le.bind(cancel)
}

// bind arranges that cancel is called with the reason when the lease ends. The function that it
// returns removes it again and cancels.
func (le *Lease) bind(cancel context.CancelCauseFunc) context.CancelFunc {
	entry := &leaseContext{cancel: cancel}
	c := le.client
	c.mu.Lock()
	end := le.end.Load()
	if end == nil {
		a := le.audienceLocked()
		if entry.next = a.contexts; entry.next != nil {
			entry.next.prev = entry
		}
		a.contexts = entry
	}
	c.mu.Unlock()
	if end != nil {
		cancel(end.err)
	}
	return func() {
		c.mu.Lock()
		le.unbindLocked(entry)
		c.mu.Unlock()
		cancel(context.Canceled)
	}
}

// unbindLocked removes the entry from the lease's list, if it is still there.
func (le *Lease) unbindLocked(entry *leaseContext) {
	if le.end.Load() != nil || entry.prev == nil && le.audience.contexts != entry {
		return // the lease has ended, and its list is gone, or the entry is removed already
	}
	if entry.prev == nil {
		le.audience.contexts = entry.next
	} else {
		entry.prev.next = entry.next
	}
	if entry.next != nil {
		entry.next.prev = entry.prev
	}
	entry.prev, entry.next = nil, nil
}

// nested checks for holds on the lock's name that the context already has. It returns a lease if
// the lock joins one of them, and ErrDeadlock if the caller would wait for itself.
func (l *Lock) nested(ctx context.Context, try bool) (*Lease, error) {
	held, _ := ctx.Value(heldKey{}).(*heldList)
	permits := l.settings.Permits
	var seen []*engine.Hold
	for ; held != nil; held = held.outer {
		h := held.lease.caller.Hold()
		other := held.lease.client != l.settings.client || held.lease.Name() != l.name
		if other || slices.Contains(seen, h) || held.lease.Err() != nil {
			continue
		}
		seen = append(seen, h)
		mode := held.lease.Mode()
		switch {
		case (mode == Slot) != (l.settings.Mode == Slot):
			// Another kind of lock: the store returns ErrMismatch.
		case mode == Slot:
			if permits += held.lease.caller.Permits(); permits > l.settings.Slots {
				return nil, deadlock(try)
			}
		case !l.settings.reentrant:
			return nil, deadlock(try)
		default:
			lease, err := held.lease.share(l.settings.Mode)
			if errors.Is(err, ErrDeadlock) {
				return nil, deadlock(try)
			}
			if err == nil {
				return lease, nil
			} // else it has just ended, and the context does not hold the name by it
		}
	}
	return nil, nil
}

// deadlock returns ErrDeadlock; for a try it is ErrHeld too.
func deadlock(try bool) error {
	if try {
		return fmt.Errorf("%w: %w", ErrHeld, ErrDeadlock)
	}
	return ErrDeadlock
}
