// Package asynq runs asynq's scheduler in one of several processes, the elected leader. Two
// schedulers that run at once enqueue each task twice.
//
//	office := election.New(locks, "asynq/scheduler", nil)
//	err := hfasynq.Run(ctx, office, hostname, time.Second, func() (*asynq.Scheduler, error) {
//		s := asynq.NewScheduler(redis, nil)
//		_, err := s.Register("*/5 * * * *", asynq.NewTask("cleanup", nil))
//		return s, err
//	})
//
// A tick at which the leader changes may be missed. The lease may have been lost while the leader
// was paused, in the very moment in which it enqueued a task: then the task may be enqueued twice. A
// task for which that matters has the option asynq.Unique too, for less than its interval.
package asynq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfastlock/holdfast/election"
)

// Run stands for election, and while this process leads it runs a scheduler. It does so until the
// context ends or a leadership ends with an error, such as its loss (holdfast.ErrLost). Call it
// again after that, to stand for election again.
//
// The value is shown to others, as with election.Campaign. The function makes the scheduler with
// its tasks; Run starts it and shuts it down, because asynq cannot start a scheduler again.
//
// After the scheduler was shut down the office stays taken for grace, so that a successor whose
// clock is behind does not enqueue the same tick again: it should be longer than the clocks of the
// processes differ. After a crash the TTL does the same.
//
// The error is nil if the context ended and all was given back. It joins the errors of the
// scheduler and of the election.
func Run(
	ctx context.Context, office *election.Election, value string, grace time.Duration,
	newScheduler func() (*asynq.Scheduler, error),
) error {
	switch {
	case newScheduler == nil:
		return errors.New("asynq: the function is nil")
	case grace < 0:
		return fmt.Errorf("asynq: grace is %v: it must not be negative", grace)
	}
	elected := false
	err := office.Do(ctx, value, func(led context.Context, l *election.Leadership) error {
		elected = true
		s, err := newScheduler()
		if err == nil {
			err = s.Start()
		}
		if err != nil {
			return err
		}
		<-led.Done()
		s.Shutdown()
		select {
		case <-time.After(grace):
		case <-l.Done():
		}
		return nil
	})
	// Once elected, an error says that the office was lost or not given back, whatever context ended there.
	if !elected && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil // it ended while another process led
	}
	return err
}
