package holdfast_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
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
	reentrant := &holdfast.Options{Reentrant: true}
	for _, tc := range []struct {
		name         string
		outer, inner func(c) *holdfast.Lock
		want         error
		sameToken    bool
	}{
		{"mutex in mutex", func(c c) *holdfast.Lock { return c.Mutex("x", nil) },
			func(c c) *holdfast.Lock { return c.Mutex("x", nil) }, holdfast.ErrDeadlock, false},
		{"reentrant", func(c c) *holdfast.Lock { return c.Mutex("x", nil) },
			func(c c) *holdfast.Lock { return c.Mutex("x", reentrant) }, nil, true},
		{"read in write", func(c c) *holdfast.Lock { return c.Mutex("x", nil) },
			func(c c) *holdfast.Lock { return c.RWMutex("x", reentrant).Read }, nil, true},
		{"read in read", func(c c) *holdfast.Lock { return c.RWMutex("x", nil).Read },
			func(c c) *holdfast.Lock { return c.RWMutex("x", reentrant).Read }, nil, true},
		{"read in read, not reentrant", func(c c) *holdfast.Lock { return c.RWMutex("x", nil).Read }, func(c c) *holdfast.Lock { return c.RWMutex("x", nil).Read }, holdfast.ErrDeadlock, false},
		{"write in read", func(c c) *holdfast.Lock { return c.RWMutex("x", nil).Read },
			func(c c) *holdfast.Lock { return c.RWMutex("x", reentrant).Write },
			holdfast.ErrDeadlock, false},
		{"other name", func(c c) *holdfast.Lock { return c.Mutex("x", nil) },
			func(c c) *holdfast.Lock { return c.Mutex("y", nil) }, nil, false},
		{"semaphore with room", func(c c) *holdfast.Lock { return c.Semaphore("x", 2, nil) },
			func(c c) *holdfast.Lock { return c.Semaphore("x", 2, nil) }, nil, false},
		{"semaphore without", func(c c) *holdfast.Lock { return c.Semaphore("x", 2, nil) },
			func(c c) *holdfast.Lock { return c.Semaphore("x", 2, &holdfast.Options{Permits: 2}) },
			holdfast.ErrDeadlock, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				client, _ := w.client(nil)
				err := tc.outer(client).Do(w.ctx, func(ctx context.Context, outer *holdfast.Lease) error {
					for _, acquire := range []func(*holdfast.Lock, context.Context) (*holdfast.Lease, error){(*holdfast.Lock).Acquire, (*holdfast.Lock).TryAcquire} {
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
			})
		})
	}
}

// A context whose lease was lost or released does not hold the name.
func TestNestedAfterTheEnd(t *testing.T) {
	inWorld(t, func(w *world) {
		c, _ := w.client(nil)
		lease := w.acquire(c.Mutex("x", nil))
		ctx, cancel := lease.WithContext(context.WithoutCancel(w.ctx))
		defer cancel()
		_ = lease.Release()
		again, err := c.Mutex("x", nil).Acquire(context.WithoutCancel(ctx))
		if err != nil {
			t.Fatalf("after the release: %v", err)
		}
		_ = again.Release()
	})
}

func TestMultiLock(t *testing.T) {
	inWorld(t, func(w *world) {
		a, f := w.client(nil)
		b, _ := w.client(nil)
		all := holdfast.All(a.Mutex("z", nil), a.RWMutex("y", nil).Read, a.Semaphore("x", 2, nil))
		ml, err := all.Acquire(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, l := range ml.Leases() {
			names = append(names, l.Name())
		}
		if len(names) != 3 || names[0] != "x" || names[2] != "z" || len(ml.Tokens()) != 3 ||
			ml.Tokens()["z"] != ml.Leases()[2].Token() {
			t.Errorf("taken in the order %v, tokens %v", names, ml.Tokens())
		}
		both := holdfast.All(b.Mutex("a", nil), b.Mutex("z", nil))
		if _, err := both.TryAcquire(w.ctx); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("TryAcquire with one held: %v", err)
		}
		w.free("a", "P6: all or nothing")
		if err := ml.Release(); err != nil || !errors.Is(ml.Err(), holdfast.ErrReleased) {
			t.Errorf("Release: %v, Err: %v", err, ml.Err())
		}
		<-ml.Done()

		// When one lock is lost, all are.
		err = all.Do(w.ctx, func(ctx context.Context, ml *holdfast.MultiLease) error {
			if err := b.Break(w.ctx, "y", ml.Tokens()["y"]); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			<-ml.Done()
			if !errors.Is(context.Cause(ctx), holdfast.ErrBroken) ||
				!errors.Is(ml.Err(), holdfast.ErrBroken) {
				t.Errorf("cause %v, Err %v", context.Cause(ctx), ml.Err())
			}
			return nil
		})
		if !errors.Is(err, holdfast.ErrBroken) {
			t.Errorf("Do returned %v", err)
		}
		for _, name := range []string{"x", "y", "z"} {
			w.free(name, "after Do")
		}
		_ = f
	})
}

// A MultiLock of several clients, on different stores.
func TestMultiLockOverClients(t *testing.T) {
	inWorld(t, func(w *world) {
		a, _ := w.client(nil)
		other := &world{T: w.T, ctx: w.ctx, clock: w.clock, store: newStore(w)}
		b, _ := other.client(nil)
		ml, err := holdfast.All(b.Mutex("x", nil), a.Mutex("x", nil)).Acquire(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []*holdfast.Client{a, b} {
			if _, err := c.Mutex("x", nil).TryAcquire(w.ctx); !errors.Is(err, holdfast.ErrHeld) {
				t.Error(err)
			}
		}
		if err := ml.Release(); err != nil {
			t.Error(err)
		}
	})
}

func TestMultiLockRefuses(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		d, _ := w.client(nil)
		x, y := c.Mutex("x", nil), c.Mutex("y", nil)
		for want, all := range map[string]*holdfast.MultiLock{
			"All needs at least one lock": holdfast.All(),
			"lock 2 of All is nil":        holdfast.All(x, nil),
			`All has "x" of`:              holdfast.All(x, y, c.RWMutex("x", nil).Read),
			"twice":                       holdfast.All(x, d.Mutex("x", nil)),
			"name is empty":               holdfast.All(x, c.Mutex("", nil)),
		} {
			if _, err := all.Acquire(w.ctx); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("P10: the error is %v, want %q", err, want)
			}
		}
		if f.tries.Load() != 0 {
			t.Error("P10: the store was asked")
		}
	})
}

// TestBlockingContext: suppose a context of the caller's own type blocks while one made from it is
// cancelled. It delays neither renewals nor the loss of other leases (P2).
func TestBlockingContext(t *testing.T) {
	for name, lose := range map[string]func(w *world, c *holdfast.Client, l *holdfast.Lease){
		"lost by the clock": func(w *world, _ *holdfast.Client, l *holdfast.Lease) { <-l.Done() },
		"broken": func(w *world, c *holdfast.Client, l *holdfast.Lease) {
			if err := c.Break(w.ctx, l.Name(), l.Token()); err != nil {
				w.Error(err)
			}
			synctest.Wait()
			if !errors.Is(l.Err(), holdfast.ErrBroken) {
				w.Errorf("P2: Err is %v", l.Err())
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				c, _ := w.client(nil)
				blocked := make(chan struct{})
				defer close(blocked)
				long := w.acquire(c.Mutex("long", nil))
				for _, name := range []string{"x", "y"} {
					lease := w.acquire(c.Mutex(name, &holdfast.Options{TTL: time.Second, RenewEvery: -1}))
					_, cancel := lease.WithContext(hookedContext{w.ctx, make(chan struct{}), func() { <-blocked }})
					lose(w, c, lease)
					_ = cancel // it would wait too
				}
				time.Sleep(time.Hour)
				if err := long.Err(); err != nil {
					t.Errorf("another lease: %v", err)
				}
			})
		})
	}
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
