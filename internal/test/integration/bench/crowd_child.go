package bench

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// The tasks of a crowd: its workers lock one name again and again, or once each.
const (
	crowdLoop = "crowd"
	crowdOnce = "queue"
)

// crowdName is the name that a crowd wants.
const crowdName = "bench/crowd"

// retryAfter is how long a worker whose call has failed waits before the next one.
const retryAfter = 20 * time.Millisecond

// leaveWithin is how long the workers of a crowd have to end after a measurement. One that has
// not ended by then is stuck.
const leaveWithin = 15 * time.Second

func (t task) ofCrowd() bool { return t.Workload == crowdLoop || t.Workload == crowdOnce }

// crowd runs the workers of one process of a crowd; worker i uses client i, or shares one.
// A call that fails is counted, and the worker asks again, because what a crowd does to a store
// is what is measured. The process that has started the others moves the arena's stage on.
func crowd(ctx context.Context, clients []Locker, t task) (result, error) {
	a, err := openArena(t.Arena)
	if err != nil {
		return result{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	workers := make([]member, t.Workers)
	a.ready.Add(1)
	for a.stage.Load() == preparing {
		time.Sleep(time.Millisecond)
	}
	ended := make(chan *member, t.Workers)
	for i := range workers {
		id := int32(1 + t.Process*t.Workers + i)
		go func() {
			workers[i].work(ctx, a, clients[i%len(clients)], t, id)
			ended <- &workers[i]
		}()
	}
	for a.stage.Load() != over {
		time.Sleep(time.Millisecond)
	}
	cancel()
	r := result{Stuck: t.Workers}
	for late := time.After(leaveWithin); r.Stuck > 0; r.Stuck-- {
		select {
		case m := <-ended:
			r.Waits = append(r.Waits, m.waits...)
			r.GaveUp += m.gaveUp
			r.Failures += m.failures
			if r.Failure == "" && m.failure != nil {
				r.Failure = m.failure.Error()
			}
			continue
		case <-late:
		}
		break
	}
	for i := range workers {
		r.Holds = append(r.Holds, workers[i].holds.Load())
	}
	return r, nil
}

// member is one worker of a crowd, and what it has seen.
type member struct {
	holds            atomic.Int64
	gaveUp, failures int64
	waits            []time.Duration
	failure          error
}

func (m *member) work(ctx context.Context, a *arena, l Locker, t task, id int32) {
	if t.Workload == crowdOnce {
		a.asking.Add(1)
	}
	for start := time.Now(); a.stage.Load() != over; {
		unlock, err := lockWithin(ctx, l, t.Patience)
		took, counts := time.Since(start), a.stage.Load() >= measured || t.Workload == crowdOnce
		switch {
		case err != nil && ctx.Err() != nil:
			// A wait that the end of the measurement cuts short counts too: a worker that never
			// gets the lock has waited longest.
			if counts {
				m.waits = append(m.waits, took)
			}
			return
		case err != nil && t.Patience > 0 && errors.Is(err, context.DeadlineExceeded):
			m.gaveUp++
			continue
		case err != nil:
			m.fail(ctx, err)
			continue
		}
		// Whoever takes the lock again at once has not waited for anybody.
		if gap := a.enter(id, t.Stay); counts && gap > 0 {
			m.waits = append(m.waits, took)
		}
		if a.stage.Load() == measured || t.Workload == crowdOnce {
			m.holds.Add(1)
		}
		if err := unlock(); err != nil {
			m.fail(ctx, err)
		}
		if t.Workload == crowdOnce {
			return
		}
		start = time.Now()
	}
}

// fail counts a call that has failed, and waits before the next one.
func (m *member) fail(ctx context.Context, err error) {
	m.failures++
	if m.failure == nil {
		m.failure = err
	}
	select {
	case <-time.After(retryAfter):
	case <-ctx.Done():
	}
}

// lockWithin locks the crowd's name, or gives up in time. The lock outlives the deadline.
func lockWithin(ctx context.Context, l Locker, patience time.Duration) (func() error, error) {
	if patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	return l.Lock(ctx, crowdName)
}

// joined puts the results of the processes of a crowd together.
func joined(parts []result) result {
	var r result
	for _, p := range parts {
		r.Holds = append(r.Holds, p.Holds...)
		r.Waits = append(r.Waits, p.Waits...)
		r.GaveUp += p.GaveUp
		r.Failures += p.Failures
		r.Stuck += p.Stuck
		if r.Failure == "" {
			r.Failure = p.Failure
		}
	}
	r.P50, r.P99 = quantile(r.Waits, 0.5), quantile(r.Waits, 0.99)
	r.Fairness = jain(r.Holds)
	for _, n := range r.Holds {
		if n == 0 {
			r.Starved++
		}
	}
	return r
}
