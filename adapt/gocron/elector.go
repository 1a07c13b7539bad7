package gocron

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/election"
)

// Elector is a gocron.Elector: of all processes that have one for the same name, one leads, and
// runs all jobs. Safe for concurrent use.
type Elector struct {
	minHold time.Duration
	cancel  context.CancelFunc
	done    chan struct{} // closed when the campaign has ended

	mu      sync.Mutex
	leader  *election.Leadership // nil: none yet
	lastYes time.Time            // when IsLeader was last true
	err     error                // why the campaign has ended
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector returns an elector for gocron.WithDistributedElector, and begins to stand for election
// to the office of that name. The value is shown to others, as with election.Campaign. Close it
// after the scheduler was shut down.
//
// An office that is closed stays taken until minHold after this process last ran a job, so that a
// successor whose clock is behind does not run the same tick again. If the leader crashes, its
// successor is elected after the TTL, or the minimum hold, whichever is later. The other options
// are those of the election, nil for the defaults. The error says that minHold is not positive.
func NewElector(
	c *holdfast.Client, name, value string, minHold time.Duration, o *holdfast.Options,
) (*Elector, error) {
	options, err := withMinHold(minHold, o)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := &Elector{minHold: minHold, cancel: cancel, done: make(chan struct{})}
	go e.campaign(ctx, election.New(c, name, &options), value)
	return e, nil
}

// campaign stands for election, again after each leadership that was lost.
func (e *Elector) campaign(ctx context.Context, office *election.Election, value string) {
	defer close(e.done)
	for pause := time.Duration(0); ctx.Err() == nil; pause = time.Second {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		leader, err := office.Campaign(ctx, value)
		e.mu.Lock()
		e.leader, e.err = leader, err
		e.mu.Unlock()
		if err != nil {
			if errors.Is(err, holdfast.ErrClosed) {
				return
			}
			continue // the store cannot be reached
		}
		select {
		case <-leader.Done():
			_ = leader.Resign() // lost: Events.Lost has told
		case <-ctx.Done():
			return // Close resigns
		}
	}
}

// IsLeader returns nil if this process leads, and otherwise ErrNotLeader, joined with the store's
// last error if there is one.
func (e *Elector) IsLeader(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leader == nil || e.leader.Err() != nil {
		return errors.Join(ErrNotLeader, e.err)
	}
	e.lastYes = time.Now()
	return nil
}

// Close gives the office up, as soon as the minimum hold after the last job is over. It returns the
// error of the resignation: a *holdfast.LostError if the leadership was lost.
func (e *Elector) Close() error {
	e.cancel()
	<-e.done
	e.mu.Lock()
	leader, open := e.leader, e.lastYes.Add(e.minHold)
	e.leader, e.err = nil, nil
	e.mu.Unlock()
	if leader == nil {
		return nil
	}
	select {
	case <-time.After(time.Until(open)):
	case <-leader.Done():
	}
	return leader.Resign()
}
