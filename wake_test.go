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

// polled hides the queue of a driver. Its store may tell when a name is free.
type polled struct {
	*faulty
	tells         bool
	sure          bool // that the news comes
	c             chan struct{}
	listen, ended atomic.Int32
}

func (p *polled) Lacks(ability any) bool {
	switch ability.(type) {
	case *driver.Queuer:
		return true
	case *driver.Waker:
		return !p.tells
	}
	return p.faulty.Lacks(ability)
}

func (p *polled) Caps() driver.Caps {
	caps := p.faulty.Caps()
	if caps.Fair = false; p.tells {
		caps.Poll = 100 * time.Millisecond
	}
	return caps
}

func (p *polled) Wakes(string) driver.Wakes {
	p.listen.Add(1)
	return p
}

func (p *polled) C() <-chan struct{} { return p.c }
func (p *polled) Sure() bool         { return p.sure }
func (p *polled) Stop()              { p.ended.Add(1) }

// TestWake: P7: whatever wakes a waiter, it has a free name within one poll. A store without a queue is polled, as
// soon as it says. If it tells when a name is free, the waiter asks at once when it is told, and polls less often; but
// as often as ever if the store tells no more, and in any case when the hold ends by time.
func TestWake(t *testing.T) {
	for name, c := range map[string]struct {
		queue             bool // the push is lost
		tells, sure, told bool
		soon              time.Duration // after which the store wants to be asked
		ttl               time.Duration // of a holder that dies; 0: it releases after ten seconds
		late              time.Duration // how much later the name is taken at most
		least, most       int32         // polls
	}{
		"the push is lost":        {queue: true, late: driver.DefaultPoll, most: 40},
		"polls":                   {late: driver.DefaultPoll, most: 40},
		"the store says how soon": {soon: 10 * time.Millisecond, late: 10 * time.Millisecond, least: 1000, most: 2100},
		"told":                    {tells: true, sure: true, told: true, most: 5},
		"the news is lost":        {tells: true, sure: true, late: driver.ToldPoll, most: 5},
		"the news is not sure":    {tells: true, late: 100 * time.Millisecond, least: 90, most: 210},
		"the holder dies":         {tells: true, sure: true, ttl: 10 * time.Second, late: 2 * time.Millisecond, most: 5},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				a, _ := w.client(nil)
				_, f := w.client(nil)
				f.wait = func(ctx context.Context, _ driver.Request) (driver.Grant, error) {
					<-ctx.Done()
					return driver.Grant{}, ctx.Err()
				}
				owners := map[string]bool{}
				f.try = func(ctx context.Context, r driver.Request) (driver.Grant, error) {
					if owners[r.Owner] && !c.queue {
						t.Error("P1: an owner that was refused asks again: what it got may still be being taken back")
					}
					owners[r.Owner] = true
					g, err := f.Driver.Try(ctx, r)
					if errors.Is(err, holdfast.ErrHeld) && c.soon > 0 {
						err = &driver.HeldError{Name: r.Name, Poll: c.soon}
					}
					return g, err
				}
				p := &polled{faulty: f, tells: c.tells, sure: c.sure, c: make(chan struct{}, 1)}
				b := w.clientOf(p, nil)
				if c.queue {
					b = w.clientOf(f, nil)
				}
				if c.ttl > 0 {
					if _, err := w.store.Client().Try(w.ctx, driver.Request{Name: "x", Owner: "dead", TTL: c.ttl}); err != nil {
						t.Fatal(err)
					}
				} else {
					lease := w.acquire(a.Mutex("x", nil))
					time.AfterFunc(10*time.Second, func() {
						if w.release(lease); c.told {
							p.c <- struct{}{}
						}
					})
				}
				var mine *holdfast.Lease
				took := w.took(func() { mine = w.acquire(b.Mutex("x", nil)) })
				if took < 10*time.Second || took > 10*time.Second+c.late {
					t.Errorf("P7: free after 10 s, acquired after %v", took)
				}
				if n := f.tries.Load(); n < c.least || n > c.most {
					t.Errorf("%d polls in 10 s, want %d to %d", n, c.least, c.most)
				}
				if n := p.listen.Load(); n != p.ended.Load() || (n == 1) != c.tells {
					t.Errorf("P9: it has listened %d times, and ended that %d times", n, p.ended.Load())
				}
				if !c.queue {
					time.AfterFunc(10*time.Second, func() { w.release(mine) })
					if took := w.took(func() { w.acquire(b.Mutex("x", nil)) }); took != 10*time.Second {
						t.Errorf("the client's own release was noticed after %v, want 10s", took)
					}
				}
			})
		})
	}
}
