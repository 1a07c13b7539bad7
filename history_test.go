package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/memlock"
)

// flaky lets a driver fail, or lose its answer, at times.
func (f *faulty) flaky() {
	flake := func(do func() error) error {
		switch rand.IntN(20) {
		case 0:
			return errStore
		case 1:
			_ = do()
			return driver.Uncertain(errStore)
		}
		return do()
	}
	flaking := func(ask asks) asks {
		return func(ctx context.Context, r driver.Request) (g driver.Grant, err error) {
			err = flake(func() (err error) { g, err = ask(ctx, r); return err })
			return g, err
		}
	}
	f.try, f.enqueue = flaking(f.Driver.Try), flaking(f.Forward.Enqueue)
	f.renew = func(ctx context.Context, grants []driver.Grant) []driver.Renewal {
		out := f.Driver.Renew(ctx, grants)
		for i := range out {
			if err := flake(func() error { return out[i].Err }); err != nil {
				out[i] = driver.Renewal{Err: err}
			}
		}
		return out
	}
}

// TestHistory: goroutines of three clients do everything at once, before a store that fails at times
// or not. Exclusive holders are alone, tokens grow from hold to hold, each hold's beginning is told
// before its end, once, and nothing is left.
func TestHistory(t *testing.T) {
	for _, fails := range []bool{false, true} {
		t.Run(fmt.Sprint("fails: ", fails), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.store = memlock.NewStore(&memlock.Options{Clock: w.clock, TokenBlock: block, Poll: 100 * time.Millisecond})
				var l ledger
				var mu sync.Mutex
				states := map[string]string{} // of holds
				tells := func(client int, from, to string) func(holdfast.Event) {
					return func(e holdfast.Event) {
						mu.Lock()
						defer mu.Unlock()
						hold := fmt.Sprint(client, " ", e.Token)
						if states[hold] != from {
							t.Errorf("hold %s was %q when %q was told", hold, states[hold], to)
						}
						states[hold] = to
					}
				}
				var people sync.WaitGroup
				var clients []*holdfast.Client
				for i := range 3 {
					c, f := w.client(&holdfast.ClientOptions{Events: holdfast.Events{
						Acquired: tells(i, "", "acquired"), Lost: tells(i, "acquired", "over"), Released: tells(i, "acquired", "over"),
					}})
					if fails {
						f.flaky()
					}
					clients = append(clients, c)
				}
				for i := range 24 {
					people.Go(func() {
						for range 40 {
							w.wander(clients[i%3], &l, fails)
						}
					})
				}
				people.Wait()
				for _, c := range clients {
					if err := c.Close(); err != nil && !fails {
						t.Error(err)
					} else if err == nil && !c.Idle() {
						t.Error("P9: a client has not forgotten everything")
					}
				}
				time.Sleep(time.Second) // a TTL, if the store has failed to the end
				w.free("n", "P6, P9: after all")
				for _, text := range l.problems {
					t.Error(text)
				}
				for hold, state := range states {
					if state != "over" {
						t.Errorf("hold %s: the end of it was not told", hold)
					}
				}
			})
		})
	}
}

// wander takes the name, perhaps impatiently, works for a moment, and releases it.
func (w *world) wander(c *holdfast.Client, l *ledger, fails bool) {
	o := &holdfast.Options{TTL: time.Second}
	if fails && rand.IntN(4) == 0 {
		o.MaxHold = 20 * time.Millisecond
	}
	lock := c.Mutex("n", o)
	if rand.IntN(4) == 0 {
		lock = c.RWMutex("n", o).Read
	}
	patience := time.Minute
	if rand.IntN(5) == 0 {
		patience = rand.N(5 * time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	lease, err := lock.Acquire(ctx)
	if err != nil {
		if !fails && !errors.Is(err, context.DeadlineExceeded) {
			l.problem("P6: acquire: %v", err)
		}
		return
	}
	l.work("a wanderer", lease)
	time.Sleep(rand.N(300 * time.Microsecond))
	switch rand.IntN(50) {
	case 0:
		_ = lease.Downgrade(ctx)
	case 1:
		_ = lease.Renew(ctx)
	case 2:
		if again, err := lease.Reenter(); err == nil {
			defer again.Release()
		}
	case 3:
		time.Sleep(12 * time.Millisecond) // longer than a cohort
	}
	if err := lease.Err(); err != nil && !fails {
		l.problem("P2: at work: %v", err)
	}
	l.done(lease)
}
