//go:build soak

package asynq

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/election"
	"github.com/holdfastlock/holdfast/memlock"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/internal/wrap"
)

// deaf is a store that confirms no release.
type deaf struct {
	wrap.Forward
	is *atomic.Bool
}

func (d deaf) Release(ctx context.Context, grants []driver.Grant) []error {
	if !d.is.Load() {
		return d.Driver.Release(ctx, grants)
	}
	<-ctx.Done()
	errs := make([]error, len(grants))
	for i := range errs {
		errs[i] = ctx.Err()
	}
	return errs
}

// TestNotGivenBack: the context of Run ends by its deadline, and the store does not confirm that the office was
// given back. Run says so.
func TestNotGivenBack(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	d := deaf{wrap.Forward{Driver: memlock.NewStore(nil).Client()}, new(atomic.Bool)}
	d.is.Store(true)
	locks, err := holdfast.New(d, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	defer d.is.Store(false)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	elected := false
	err = Run(ctx, election.New(locks, "office", nil), "a", 0, func() (*asynq.Scheduler, error) {
		elected = true
		return asynq.NewScheduler(asynq.RedisClientOpt{Addr: server.Addr}, &asynq.SchedulerOpts{LogLevel: asynq.ErrorLevel}), nil
	})
	if elected && !errors.Is(err, holdfast.ErrUncertain) {
		t.Errorf("Run returned %v, and the office was not given back", err)
	}
}
