package otelhold_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/otelhold"
	"go.opentelemetry.io/otel/attribute"
)

const (
	exclusive = "holdfast.lock.mode=exclusive}"
	shared    = "holdfast.lock.mode=shared}"
	got       = "holdfast.acquire.duration{holdfast.acquire.source="
	failed    = "holdfast.acquire.duration{error.type="
	released  = "holdfast.hold.duration{holdfast.hold.end=released,"
	active    = "holdfast.acquire.active{"
)

// TestSources: the acquire's histogram tells a free name, a hand-over by the store, a hold that the client shares, and
// one that the caller has already.
func TestSources(t *testing.T) {
	inRig(t, nil, nil, func(r *rig) {
		other := r.stranger()
		defer other.Close()
		theirs := r.acquire(r.Context(), other.Mutex("x", nil))
		leases := make(chan *holdfast.Lease)
		for range 2 { // neighbours at the gate, which share what the store hands over
			go func() { leases <- r.acquire(r.Context(), r.RWMutex("x", nil).Read) }()
		}
		synctest.Wait()
		r.expect(map[string]int64{active + shared: 2})
		r.release(theirs)
		first, second := <-leases, <-leases
		r.release(first)
		r.release(second)
		x, again := r.Mutex("x", nil), r.Mutex("x", &holdfast.Options{Reentrant: true})
		if err := x.Do(r.Context(), func(ctx context.Context, _ *holdfast.Lease) error {
			synctest.Wait()
			if values, _ := collect(r, r.reader); values["holdfast.hold.active{"+exclusive] != 1 {
				r.Errorf("one hold is active, measured are %v", values)
			}
			return again.Do(ctx, func(context.Context, *holdfast.Lease) error { return nil })
		}); err != nil {
			r.Error(err)
		}
		r.expect(map[string]int64{
			got + "store," + shared: 1, got + "local," + shared: 1, got + "free," + exclusive: 1, got + "reentrant," + exclusive: 1,
			released + exclusive: 1, released + shared: 1, "holdfast.release.duration{}": 2,
		})
	})
}

// TestRefusals: an acquire without a lease is measured by the kind of its error.
func TestRefusals(t *testing.T) {
	inRig(t, nil, nil, func(r *rig) {
		x, other := r.Mutex("x", nil), r.stranger()
		defer other.Close()
		theirs := r.acquire(r.Context(), other.Mutex("x", nil))
		if _, err := x.TryAcquire(r.Context()); !errors.Is(err, holdfast.ErrHeld) {
			r.Error(err)
		}
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if _, err := x.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			r.Error(err)
		}
		ctx, cancel = context.WithCancel(r.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := x.Acquire(ctx); !errors.Is(err, context.Canceled) {
			r.Error(err)
		}
		if _, err := r.Semaphore("x", 3, nil).Acquire(r.Context()); !errors.Is(err, holdfast.ErrMismatch) {
			r.Error(err)
		}
		r.release(theirs)
		if err := x.Do(r.Context(), func(ctx context.Context, _ *holdfast.Lease) error {
			_, err := x.Acquire(ctx)
			return err
		}); !errors.Is(err, holdfast.ErrDeadlock) {
			r.Error(err)
		}
		time.Sleep(time.Second) // the places are taken back
		synctest.Wait()
		values, _ := collect(r, r.reader)
		for _, kind := range []string{"held", "timeout", "canceled", "deadlock"} {
			if n := values[failed+kind+","+exclusive]; n != 1 {
				r.Errorf("%d acquires ended with %s, want 1", n, kind)
			}
		}
		if n := values[failed+"mismatch,holdfast.lock.mode=slot}"]; n != 1 {
			r.Errorf("%d acquires ended with a mismatch, want 1", n)
		}
	})
}

// TestDoubtAndLoss: renewals that fail, holds in doubt, those that recover, and losses by their reason.
func TestDoubtAndLoss(t *testing.T) {
	inRig(t, nil, nil, func(r *rig) {
		options := &holdfast.Options{TTL: 9 * time.Second, RenewEvery: 3 * time.Second}
		lease := r.acquire(r.Context(), r.Mutex("x", options))
		values, _ := collect(r, r.reader)
		for _, series := range []string{
			"hold.in_doubt{" + exclusive, "hold.recovered{" + exclusive, "hold.expiring{" + exclusive, "hold.lost{error.type=expired," + exclusive,
			"hold.lost{error.type=not_held," + exclusive, "hold.lost{error.type=broken," + exclusive, "hold.lost{error.type=max_hold," + exclusive, "events.dropped{}",
		} {
			if n, ok := values["holdfast."+series]; !ok || n != 0 {
				r.Errorf("%s is not there before its first increase", series)
			}
		}
		inDoubt := func(want int64) {
			r.Helper()
			synctest.Wait()
			if values, _ := collect(r, r.reader); values["holdfast.doubt.active{"+exclusive] != want {
				r.Errorf("%d holds are in doubt, measured are %v", want, values)
			}
		}
		r.driver.silent.Store(true)
		time.Sleep(3500 * time.Millisecond)
		inDoubt(1)
		r.driver.silent.Store(false)
		time.Sleep(3 * time.Second)
		inDoubt(0)
		values, _ = collect(r, r.reader)
		if values["holdfast.hold.in_doubt{"+exclusive] != 1 || values["holdfast.hold.recovered{"+exclusive] != 1 ||
			values["holdfast.renew.holds{error.type=_OTHER}"] == 0 || values["holdfast.renew.holds{}"] == 0 {
			r.Errorf("a hold was in doubt and recovered, measured are %v", values)
		}
		r.driver.silent.Store(true)
		<-lease.Done()
		inDoubt(0)
		r.driver.silent.Store(false)
		broken := r.acquire(r.Context(), r.Mutex("y", options))
		if err := r.Break(r.Context(), "y", broken.Token()); err != nil {
			r.Error(err)
		}
		<-broken.Done()
		hung := r.acquire(r.Context(), r.Mutex("z", &holdfast.Options{TTL: 9 * time.Second, MaxHold: time.Minute}))
		<-hung.Done()
		synctest.Wait()
		values, _ = collect(r, r.reader)
		for _, kind := range []string{"expired", "broken", "max_hold"} {
			if n := values["holdfast.hold.lost{error.type="+kind+","+exclusive]; n != 1 {
				r.Errorf("%d holds were lost by %s, want 1", n, kind)
			}
			if n := values["holdfast.hold.duration{error.type="+kind+",holdfast.hold.end=lost,"+exclusive]; n != 1 {
				r.Errorf("%d holds ended by %s, want 1", n, kind)
			}
		}
		if n := values["holdfast.hold.expiring{"+exclusive]; n != 1 {
			r.Errorf("%d holds expired, want 1", n)
		}
		if n := values["holdfast.hold.active{"+exclusive]; n != 0 {
			r.Errorf("%d holds are active, want none", n)
		}
	})
}

// TestClass: a class of names is an attribute, and so are those of the client.
func TestClass(t *testing.T) {
	o := &otelhold.Options{
		Class:      func(name string) string { return name[:1] },
		Attributes: []attribute.KeyValue{attribute.String("shop", "north")},
	}
	inRig(t, &holdfast.ClientOptions{Prefix: "p/"}, o, func(r *rig) {
		for _, name := range []string{"a1", "a2", "b1"} {
			r.release(r.acquire(r.Context(), r.Mutex(name, nil)))
		}
		const a, b = "holdfast.lock.class=a,holdfast.lock.mode=exclusive,shop=north}", "holdfast.lock.class=b,holdfast.lock.mode=exclusive,shop=north}"
		r.expect(map[string]int64{
			got + "free," + a: 2, got + "free," + b: 1, released + a: 2, released + b: 1,
			"holdfast.release.duration{shop=north}": 3,
		})
	})
}
