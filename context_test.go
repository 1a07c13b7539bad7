package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
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

// TestWithContext: contexts of a lease end with it, for its reason, and each by itself without it.
func TestWithContext(t *testing.T) {
	inWorld(t, func(w *world) {
		c, _ := w.client(nil)
		lease := w.acquire(c.Mutex("x", nil))
		parent, stop := context.WithCancel(w.ctx)
		var all [5]context.Context
		var cancels [5]context.CancelFunc
		for i, parent := range []context.Context{w.ctx, w.ctx, w.ctx, parent} {
			all[i], cancels[i] = lease.WithContext(parent)
		}
		cancels[1]() // from the middle of the list, twice
		cancels[1]()
		stop()
		if all[0].Err() != nil || all[1].Err() == nil || all[2].Err() != nil || all[3].Err() == nil || lease.Err() != nil {
			t.Errorf("after cancelling the second and the parent of the last: %v; the lease: %v", all, lease.Err())
		}
		w.release(lease)
		all[4], cancels[4] = lease.WithContext(w.ctx)
		for _, i := range []int{0, 2, 4} {
			if cause := context.Cause(all[i]); !errors.Is(cause, holdfast.ErrReleased) {
				t.Errorf("the cause of context %d is %v", i, cause)
			}
		}
		for _, cancel := range cancels {
			cancel()
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

// TestDowngrade: a writer is not downgraded while another lease counts on its being alone. Its token does not shrink
// (P3), and it is renewed beside a reader. ExampleLease_Downgrade shows who gets in.
func TestDowngrade(t *testing.T) {
	inWorld(t, func(w *world) {
		c, _ := w.client(nil)
		d, _ := w.client(nil)
		writer := w.acquire(c.RWMutex("x", nil).Write)
		token := writer.Token()
		again, _ := writer.Reenter()
		if err := writer.Downgrade(w.ctx); err == nil {
			t.Error("downgraded under another lease that relies on holding the name alone")
		}
		w.release(again)
		if err := writer.Downgrade(w.ctx); err != nil || writer.Mode() != holdfast.Shared || writer.Token() < token {
			t.Errorf("P3: %v, token %d after %d: %v", writer.Mode(), writer.Token(), token, err)
		}
		reader := w.acquire(d.RWMutex("x", nil).Read)
		time.Sleep(time.Hour)
		w.release(reader)
		w.release(writer)
	})
}

// downer overrides Downgrade.
type downer struct {
	*faulty
	down func(context.Context, driver.Grant) (driver.Grant, error)
}

func (d *downer) Downgrade(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	return d.down(ctx, g)
}

// TestUncertainDowngrade: the store has downgraded the hold, or not, and the answer is lost. From the sending on
// no lease counts as exclusive (P1), and the sequencer of a lease that counts as shared is current. A second
// Downgrade ends that. A store that cannot downgrade leaves the lease as it is.
func TestUncertainDowngrade(t *testing.T) {
	for _, done := range []bool{true, false} {
		inWorld(t, func(w *world) {
			_, f := w.client(nil)
			d := &downer{faulty: f}
			c := w.clientOf(d, nil)
			d.down = func(context.Context, driver.Grant) (driver.Grant, error) {
				return driver.Grant{}, driver.ErrUnsupported
			}
			lease := w.acquire(c.RWMutex("x", nil).Write)
			if err := lease.Downgrade(w.ctx); !errors.Is(err, holdfast.ErrUnsupported) || lease.Mode() != holdfast.Exclusive {
				t.Errorf("Downgrade: %v, and the lease is %v", err, lease.Mode())
			}
			d.down = func(ctx context.Context, g driver.Grant) (driver.Grant, error) {
				if done {
					_, _ = f.Forward.Downgrade(ctx, g)
				}
				return driver.Grant{}, driver.Uncertain(errStore)
			}
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
			d.down = f.Forward.Downgrade
			if err := lease.Downgrade(w.ctx); err != nil {
				t.Error(err)
			}
			if err := c.CheckSequencer(w.ctx, before); !errors.Is(err, holdfast.ErrNotHeld) {
				t.Errorf("the exclusive sequencer of a shared lease: %v", err)
			}
		})
	}
}
