//go:build soak

package drivertest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/wrap"
	"github.com/holdfastlock/holdfast/memlock"
)

// slow is a client that connects at its first use, which takes long, and whose requests and
// replies take a while.
type slow struct {
	wrap.Forward
	connect sync.Once
}

const (
	away       = 5 * time.Millisecond
	connecting = 100 * time.Millisecond
)

func (s *slow) there() {
	s.connect.Do(func() { time.Sleep(connecting) })
	time.Sleep(away)
}

func (s *slow) back() { time.Sleep(away) }

func (s *slow) Try(ctx context.Context, r driver.Request) (driver.Grant, error) {
	sent := driver.HostClock.Now()
	s.there()
	defer s.back()
	g, err := s.Forward.Try(ctx, r)
	g.Since = sent
	return g, err
}

func (s *slow) Enqueue(ctx context.Context, r driver.Request) (driver.Grant, error) {
	s.there()
	defer s.back()
	return s.Forward.Enqueue(ctx, r)
}

func (s *slow) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	sent := driver.HostClock.Now()
	s.there()
	defer s.back()
	renewals := s.Forward.Renew(ctx, grants)
	for i := range renewals {
		renewals[i].Since = sent
	}
	return renewals
}

func (s *slow) Release(ctx context.Context, grants []driver.Grant) []error {
	s.there()
	defer s.back()
	return s.Forward.Release(ctx, grants)
}

// TestSlowStorePasses: a slow store that keeps its promises passes the themes in which time
// matters.
func TestSlowStorePasses(t *testing.T) {
	store := memlock.NewStore(&memlock.Options{Poll: 4 * fastPoll})
	runOn(realStage{t}, Harness{
		Open:       func(testing.TB) driver.Driver { return &slow{Forward: wrap.Forward{Driver: store.Client()}} },
		Operations: 200,
	}, "queue", "fairness", "renew", "withdrawal", "expiry", "delays", "inspect", "breaks", "downgrade", "faults", "history", "client")
}
