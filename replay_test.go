package holdfast

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/explore/replay"
	"github.com/holdfastlock/holdfast/internal/wrap"
	"github.com/holdfastlock/holdfast/memlock"
)

// bubbleClock is the time of a synctest bubble.
type bubbleClock struct{ start time.Time }

func (c bubbleClock) Now() driver.Instant { return driver.Instant(time.Since(c.start)) }

// flaky is a driver that fails or loses its answer at times.
type flaky struct{ wrap.Forward }

func (m flaky) flake(do func() error) error {
	switch rand.IntN(20) {
	case 0:
		return errors.New("the store is out of order")
	case 1:
		_ = do()
		return driver.Uncertain(errors.New("the answer is lost"))
	}
	return do()
}

func (m flaky) Try(ctx context.Context, r driver.Request) (g driver.Grant, err error) {
	err = m.flake(func() (err error) { g, err = m.Driver.Try(ctx, r); return err })
	return g, err
}

func (m flaky) Enqueue(ctx context.Context, r driver.Request) (g driver.Grant, err error) {
	err = m.flake(func() (err error) { g, err = m.Forward.Enqueue(ctx, r); return err })
	return g, err
}

func (m flaky) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	out := m.Driver.Renew(ctx, grants)
	for i := range out {
		if err := m.flake(func() error { return out[i].Err }); err != nil {
			out[i] = driver.Renewal{Err: err}
		}
	}
	return out
}

// TestReplay: a new engine answers the events of real runs as the engine of the run did, and none
// of its states is wrong. The runs have goroutines, two clients and a store that fails at times.
func TestReplay(t *testing.T) {
	for range 20 {
		var logs []*replay.Log
		synctest.Test(t, func(t *testing.T) {
			clock := bubbleClock{time.Now()}
			store := memlock.NewStore(&memlock.Options{Clock: clock, TokenBlock: 8, Poll: 100 * time.Millisecond})
			var clients []*Client
			for range 2 {
				c, err := New(flaky{wrap.Forward{Driver: store.Client()}}, &ClientOptions{Clock: clock})
				if err != nil {
					t.Fatal(err)
				}
				clients = append(clients, c)
				logs = append(logs, c.Record())
			}
			var people sync.WaitGroup
			for i := range 12 {
				people.Go(func() { wander(clients[i%2]) })
			}
			people.Wait()
			for _, c := range clients {
				_ = c.Close()
			}
		})
		for _, l := range logs {
			if err := l.Replay(); err != nil {
				t.Fatal(err)
			}
		}
		if logs[0].Len() < 100 {
			t.Errorf("only %d steps", logs[0].Len())
		}
	}
}

// wander takes and releases locks at random.
func wander(c *Client) {
	for range 20 {
		o := &Options{TTL: 60 * time.Millisecond}
		if rand.IntN(4) == 0 {
			o.MaxHold = 20 * time.Millisecond
		}
		l := c.Mutex("n", o)
		if rand.IntN(3) == 0 {
			l = c.RWMutex("n", o).Read
		}
		ctx, cancel := context.WithTimeout(context.Background(), rand.N(50*time.Millisecond))
		if lease, err := l.Acquire(ctx); err == nil {
			switch rand.IntN(7) {
			case 0:
				_ = lease.Downgrade(ctx)
			case 1:
				_ = lease.Renew(ctx)
			case 2:
				if other, err := lease.Reenter(); err == nil {
					defer other.Release()
				}
			}
			time.Sleep(rand.N(5 * time.Millisecond))
			_ = lease.Release()
		}
		cancel()
	}
}
