package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
)

func TestDo(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		mine := errors.New("mine")
		l := c.Mutex("x", nil)
		var inner context.Context
		err := l.Do(w.ctx, func(ctx context.Context, lease *holdfast.Lease) error {
			inner = ctx
			if ctx.Err() != nil || lease.Token() == 0 {
				t.Errorf("inside: %v, token %d", ctx.Err(), lease.Token())
			}
			return mine
		})
		if !errors.Is(err, mine) || errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Do returned %v", err)
		}
		if inner.Err() == nil {
			t.Error("the context has not ended after Do")
		}
		w.free("x", "after Do")

		// A section that may have run unprotected is never a success.
		err = l.Do(w.ctx, func(ctx context.Context, _ *holdfast.Lease) error {
			f.set(func() { f.renew = failRenewals })
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, holdfast.ErrLost) {
				t.Errorf("P2: cause %v", cause)
			}
			return nil
		})
		if !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Do over a loss returned %v", err)
		}
		f.set(func() { f.renew = nil })

		func() {
			defer func() {
				if recover() != "oh" {
					t.Error("the panic was swallowed")
				}
			}()
			_ = l.Do(w.ctx, func(context.Context, *holdfast.Lease) error { panic("oh") })
		}()
		w.free("x", "after a panic")
	})
}

// P11: the context of Acquire bounds the wait only.
func TestLeaseOutlivesItsAcquireContext(t *testing.T) {
	inWorld(t, func(w *world) {
		c, _ := w.client(nil)
		ctx, cancel := context.WithTimeout(w.ctx, time.Second)
		lease, err := c.Mutex("x", nil).Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		time.Sleep(time.Hour)
		if err := lease.Err(); err != nil {
			t.Errorf("P11: %v", err)
		}
	})
}

func TestWithContext(t *testing.T) {
	inWorld(t, func(w *world) {
		c, _ := w.client(nil)
		lease := w.acquire(c.Mutex("x", nil))
		one, cancelOne := lease.WithContext(w.ctx)
		two, cancelTwo := lease.WithContext(w.ctx)
		three, cancelThree := lease.WithContext(w.ctx)
		defer cancelThree()
		cancelTwo()
		cancelTwo()
		if one.Err() != nil || two.Err() == nil || three.Err() != nil || lease.Err() != nil {
			t.Errorf("after cancelling the second: %v, %v, %v, %v",
				one.Err(), two.Err(), three.Err(), lease.Err())
		}
		parent, stop := context.WithCancel(w.ctx)
		child, cancelChild := lease.WithContext(parent)
		defer cancelChild()
		stop()
		if child.Err() == nil || lease.Err() != nil {
			t.Errorf("after the parent's end: %v, %v", child.Err(), lease.Err())
		}
		_ = lease.Release()
		if !errors.Is(context.Cause(one), holdfast.ErrReleased) ||
			!errors.Is(context.Cause(three), holdfast.ErrReleased) {
			t.Errorf("causes %v and %v", context.Cause(one), context.Cause(three))
		}
		cancelOne()
		late, cancelLate := lease.WithContext(w.ctx)
		defer cancelLate()
		if !errors.Is(context.Cause(late), holdfast.ErrReleased) {
			t.Errorf("a context of a released lease: %v", context.Cause(late))
		}
	})
}

// Nested acquires of a name that the context holds join the hold, or are refused, or, in a
// semaphore with room, take a hold of their own.
func TestNested(t *testing.T) {
	type c = *holdfast.Client
	mutex := func(c c) *holdfast.Lock { return c.Mutex("x", nil) }
	read := func(c c) *holdfast.Lock { return c.RWMutex("x", nil).Read }
	slot := func(c c) *holdfast.Lock { return c.Semaphore("x", 2, nil) }
	reentrant := &holdfast.Options{Reentrant: true}
	joiningRead := func(c c) *holdfast.Lock { return c.RWMutex("x", reentrant).Read }
	for _, tc := range []struct {
		name         string
		outer, inner func(c) *holdfast.Lock
		want         error
		sameToken    bool
	}{
		{"mutex in mutex", mutex, mutex, holdfast.ErrDeadlock, false},
		{"reentrant", mutex, func(c c) *holdfast.Lock { return c.Mutex("x", reentrant) }, nil, true},
		{"read in write", mutex, joiningRead, nil, true},
		{"read in read", read, joiningRead, nil, true},
		{"read in read, not reentrant", read, read, holdfast.ErrDeadlock, false},
		{"write in read", read, func(c c) *holdfast.Lock { return c.RWMutex("x", reentrant).Write }, holdfast.ErrDeadlock, false},
		{"other name", mutex, func(c c) *holdfast.Lock { return c.Mutex("y", nil) }, nil, false},
		{"semaphore with room", slot, slot, nil, false},
		{"semaphore without", slot, func(c c) *holdfast.Lock { return c.Semaphore("x", 2, &holdfast.Options{Permits: 2}) },
			holdfast.ErrDeadlock, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				client, _ := w.client(nil)
				var after context.Context
				err := tc.outer(client).Do(w.ctx, func(ctx context.Context, outer *holdfast.Lease) error {
					after = context.WithoutCancel(ctx)
					for _, acquire := range []func(*holdfast.Lock, context.Context) (*holdfast.Lease, error){
						(*holdfast.Lock).Acquire, (*holdfast.Lock).TryAcquire,
					} {
						inner, err := acquire(tc.inner(client), ctx)
						if !errors.Is(err, tc.want) {
							t.Errorf("the inner acquire returned %v, want %v", err, tc.want)
						}
						if err != nil {
							continue
						}
						if same := inner.Token() == outer.Token(); same != tc.sameToken {
							t.Errorf("tokens %d and %d", outer.Token(), inner.Token())
						}
						if err := inner.Release(); err != nil || outer.Err() != nil {
							t.Errorf("releasing the inner one: %v; the outer is %v", err, outer.Err())
						}
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				w.free("x", "after the outer section")
				again, err := tc.outer(client).TryAcquire(after)
				if err != nil {
					t.Fatalf("a context whose lease is released holds the name: %v", err)
				}
				_ = again.Release()
			})
		})
	}
}

// TestBlockingContext: a context of the caller's own type that blocks while one made from it is
// cancelled delays neither renewals nor the loss of other leases (P2).
func TestBlockingContext(t *testing.T) {
	inWorld(t, func(w *world) {
		c, _ := w.client(nil)
		blocked := make(chan struct{})
		defer close(blocked)
		long := w.acquire(c.Mutex("long", nil))
		for _, name := range []string{"x", "y"} {
			lease := w.acquire(c.Mutex(name, &holdfast.Options{TTL: time.Second, RenewEvery: -1}))
			_, cancel := lease.WithContext(hookedContext{w.ctx, make(chan struct{}), func() { <-blocked }})
			<-lease.Done()
			_ = cancel // it would wait too
		}
		time.Sleep(time.Hour)
		if err := long.Err(); err != nil {
			t.Errorf("another lease: %v", err)
		}
	})
}

// hookedContext is a context that calls onCancel when a context made from it is cancelled.
type hookedContext struct {
	context.Context
	done     chan struct{}
	onCancel func()
}

func (p hookedContext) Done() <-chan struct{} { return p.done }

func (p hookedContext) AfterFunc(func()) func() bool {
	return func() bool { p.onCancel(); return true }
}
