package holdfast_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

// A store without a queue may say how soon it should be polled again.
func TestStoreSaysHowSoon(t *testing.T) {
	inWorld(t, func(w *world) {
		a, _ := w.client(nil)
		_, f := w.client(nil)
		owners := map[string]bool{}
		f.try = func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
			if owners[r.Owner] {
				t.Error("P1: an owner that was refused asks again: what it got may still be being taken back")
			}
			owners[r.Owner] = true
			g, err := d.Try(ctx, r)
			if errors.Is(err, holdfast.ErrHeld) {
				err = &driver.HeldError{Name: r.Name, Poll: 10 * time.Millisecond}
			}
			return g, err
		}
		b := w.clientOf(&polled{f}, nil)
		lease := w.acquire(a.Mutex("x", nil))
		time.AfterFunc(time.Second, func() { _ = lease.Release() })
		if took := w.took(func() { w.acquire(b.Mutex("x", nil)) }); took > time.Second+10*time.Millisecond {
			t.Errorf("free after 1 s, acquired after %v", took)
		}
		if n := f.tries.Load(); n < 100 || n > 210 {
			t.Errorf("%d polls in 1 s, want one each 5 to 10 ms", n)
		}
	})
}

// telling is a driver without a queue whose store may tell when a name is free.
type telling struct {
	polled
	c             chan struct{}
	sure          atomic.Bool
	listen, ended atomic.Int32
}

func (d *telling) Caps() driver.Caps {
	caps := d.polled.Caps()
	caps.Poll = 100 * time.Millisecond
	return caps
}

func (d *telling) Wakes(string) driver.Wakes {
	d.listen.Add(1)
	return wakesOf{d}
}

type wakesOf struct{ d *telling }

func (w wakesOf) C() <-chan struct{} { return w.d.c }
func (w wakesOf) Sure() bool         { return w.d.sure.Load() }
func (w wakesOf) Stop()              { w.d.ended.Add(1) }

// A waiter of a store without a queue that tells when a name is free looks at once when it is told, and
// polls less often. It polls as often as ever if the store tells no more, and in any case when the hold ends by
// time.
func TestToldStore(t *testing.T) {
	const poll = 100 * time.Millisecond
	for name, c := range map[string]struct {
		sure, told  bool
		ttl         time.Duration // of a holder that dies; 0: it releases after ten seconds
		late        time.Duration // how much later the name is taken at most
		least, most int32         // polls
	}{
		"told":                   {sure: true, told: true, most: 25},
		"the news is lost":       {sure: true, late: driver.DefaultPoll, most: 25},
		"the store does not say": {late: poll, least: 90, most: 210},
		"the holder dies":        {sure: true, ttl: 10 * time.Second, late: 2 * time.Millisecond, most: 25},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				a, _ := w.client(nil)
				_, f := w.client(nil)
				d := &telling{polled: polled{f}, c: make(chan struct{}, 1)}
				d.sure.Store(c.sure)
				b := w.clientOf(d, nil)
				if c.ttl > 0 {
					dead := w.store.Client()
					if _, err := dead.Try(w.ctx, driver.Request{Name: "x", Owner: "dead", TTL: c.ttl}); err != nil {
						t.Fatal(err)
					}
				} else {
					lease := w.acquire(a.Mutex("x", nil))
					time.AfterFunc(10*time.Second, func() {
						_ = lease.Release()
						if c.told {
							d.c <- struct{}{}
						}
					})
				}
				took := w.took(func() { w.acquire(b.Mutex("x", nil)) })
				if took < 10*time.Second || took > 10*time.Second+c.late {
					t.Errorf("P7: free after 10 s, acquired after %v", took)
				}
				if n := f.tries.Load(); n < c.least || n > c.most {
					t.Errorf("%d polls in 10 s, want %d to %d", n, c.least, c.most)
				}
				if d.listen.Load() != 1 || d.ended.Load() != 1 {
					t.Errorf("P9: it has listened %d times, and ended that %d times", d.listen.Load(), d.ended.Load())
				}
			})
		})
	}
}
