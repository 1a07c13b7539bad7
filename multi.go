package holdfast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// MultiLock is several locks that are taken as one: all of them, or none. They may belong to
// several clients, and to different stores. Like a Lock it has no state.
type MultiLock struct {
	locks []*Lock // in the order in which they are taken
	err   error
}

// All returns the locks as one. Every process takes them in the same order, by store (Caps.Store)
// and name, whatever the order here, so that two processes never wait for one another. (After a
// store has lost its data, clients opened before and after may see it as different stores: see its
// Guarantees.)
//
// The list must not be empty, and must not contain the same name of one store twice, in any modes.
// Each use of the MultiLock returns such an error, and the errors of the locks.
func All(locks ...*Lock) *MultiLock {
	m := &MultiLock{locks: slices.Clone(locks)}
	if len(locks) == 0 {
		m.err = errors.New("holdfast: All needs at least one lock")
		return m
	}
	if i := slices.Index(locks, nil); i >= 0 {
		m.err = fmt.Errorf("holdfast: lock %d of All is nil", i+1)
		return m
	}
	slices.SortStableFunc(m.locks, (*Lock).compare)
	for i, l := range m.locks[1:] {
		if l.compare(m.locks[i]) == 0 {
			m.err = fmt.Errorf("holdfast: All has %q of %s twice",
				l.name, l.settings.client.caps.Store)
		}
	}
	return m
}

// compare orders locks by the identity of the store and the name in it.
func (l *Lock) compare(other *Lock) int {
	mine, others := l.settings.client, other.settings.client
	return cmp.Or(
		cmp.Compare(mine.caps.Store, others.caps.Store),
		cmp.Compare(mine.opts.Prefix+l.name, others.opts.Prefix+other.name),
	)
}

// Acquire blocks until all locks are held, which it takes one after the other, and returns their
// lease. On an error it releases those that it has.
func (m *MultiLock) Acquire(ctx context.Context) (*MultiLease, error) {
	return m.acquire(ctx, (*Lock).Acquire)
}

// TryAcquire takes all locks if they are free, and otherwise none.
func (m *MultiLock) TryAcquire(ctx context.Context) (*MultiLease, error) {
	return m.acquire(ctx, (*Lock).TryAcquire)
}

// Do acquires the locks, runs fn, and releases them, like Lock.Do. The context ends at the first
// loss.
func (m *MultiLock) Do(ctx context.Context, fn func(context.Context, *MultiLease) error) error {
	if fn == nil {
		return fmt.Errorf("holdfast: do: %w", errNilFunc)
	}
	lease, err := m.Acquire(ctx)
	if err != nil {
		return err
	}
	return protect(ctx, lease, func(ctx context.Context) error { return fn(ctx, lease) })
}

// acquireOne is (*Lock).Acquire or (*Lock).TryAcquire.
type acquireOne func(*Lock, context.Context) (*Lease, error)

func (m *MultiLock) acquire(ctx context.Context, one acquireOne) (*MultiLease, error) {
	if m.err != nil {
		return nil, m.err
	}
	for _, l := range m.locks {
		// An error of any lock is returned before the first is taken (P10).
		if err := l.check(ctx, "acquire"); err != nil {
			return nil, err
		}
	}
	ml := &MultiLease{}
	ml.first, ml.cancel = context.WithCancelCause(context.Background())
	// Once one is lost, waiting for the others is of no use.
	wait, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ml.first, func() { cancel(context.Cause(ml.first)) })()
	panicked := true
	defer func() {
		if panicked { // the driver panicked in the acquire of one; others are held (P6)
			_ = ml.undo()
		}
	}()
	err := ml.take(wait, m.locks, one)
	panicked = false
	if err != nil {
		return nil, errors.Join(err, ml.undo())
	}
	return ml, nil
}

// take acquires the locks. After an error ml has some of them.
func (ml *MultiLease) take(ctx context.Context, locks []*Lock, one acquireOne) error {
	for _, l := range locks {
		lease, err := one(l, ctx)
		if err != nil {
			return err
		}
		ml.leases = append(ml.leases, lease)
		ml.unbind = append(ml.unbind, lease.core.Bind(ml.cancel))
	}
	return ml.Err() // one may have been lost during the wait for the next
}

// MultiLease is the hold on all locks of a MultiLock. When one of them is lost, all of it is. Safe
// for concurrent use.
type MultiLease struct {
	leases []*Lease
	unbind []context.CancelFunc
	first  context.Context // ends with the first lease that ends
	cancel context.CancelCauseFunc
}

// Leases returns the leases in the order in which they were taken.
func (ml *MultiLease) Leases() []*Lease { return slices.Clone(ml.leases) }

// Tokens returns the fencing tokens by name. If two stores have a lock of the same name, use
// Leases.
func (ml *MultiLease) Tokens() map[string]Token {
	tokens := make(map[string]Token, len(ml.leases))
	for _, l := range ml.leases {
		tokens[l.Name()] = l.Token()
	}
	return tokens
}

// Err returns nil while all leases can be trusted, and else the error of the first that cannot.
func (ml *MultiLease) Err() error {
	for _, l := range ml.leases {
		if err := l.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Done returns a channel that is closed at the first loss, or at the release.
func (ml *MultiLease) Done() <-chan struct{} { return ml.first.Done() }

// ValidUntil returns the earliest trust deadline of the leases.
func (ml *MultiLease) ValidUntil() time.Time {
	first := ml.leases[0].ValidUntil()
	for _, l := range ml.leases[1:] {
		if t := l.ValidUntil(); t.Before(first) {
			first = t
		}
	}
	return first
}

// WithContext is Lease.WithContext for all leases: the context ends at the first loss, and carries
// every hold.
func (ml *MultiLease) WithContext(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancels := parent, make([]context.CancelFunc, len(ml.leases))
	for i, l := range ml.leases {
		ctx, cancels[i] = l.WithContext(ctx)
	}
	return ctx, func() {
		for _, cancel := range slices.Backward(cancels) {
			cancel()
		}
	}
}

// Release releases all leases at the same time, so that a dead store does not delay the others. It
// returns their errors joined, that of the lease taken last first. See Lease.Release.
func (ml *MultiLease) Release() error { return ml.release((*Lease).Release) }

// ReleaseNow releases all leases without their minimum holds. See Lease.ReleaseNow.
func (ml *MultiLease) ReleaseNow() error { return ml.release((*Lease).ReleaseNow) }

func (ml *MultiLease) release(one func(*Lease) error) error {
	// The work ends before any of the names is free.
	ml.cancel(ErrReleased)
	for _, unbind := range ml.unbind {
		unbind()
	}
	n := len(ml.leases)
	errs := make([]error, n)
	var all sync.WaitGroup
	for i, l := range ml.leases {
		all.Go(func() { errs[n-1-i] = one(l) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// undo releases what a failed acquire has, without the minimum hold (P6). It ignores losses:
// nothing has been done under the leases.
func (ml *MultiLease) undo() error {
	err := ml.ReleaseNow()
	if errors.Is(err, ErrUncertain) {
		return err
	}
	return nil
}
