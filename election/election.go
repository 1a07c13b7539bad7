package election

import (
	"context"
	"errors"
	"iter"

	"github.com/holdfastlock/holdfast"
)

// Election is the election to one office, which has the name of a lock. It has no state. Safe for
// concurrent use.
type Election struct {
	client  *holdfast.Client
	name    string
	options holdfast.Options
}

// New returns the election of a name. It does no I/O. The options are those of the lock, nil for the
// defaults; the Note is not used. Candidates and observers need not have the same options.
func New(c *holdfast.Client, name string, o *holdfast.Options) *Election {
	e := &Election{client: c, name: name}
	if o != nil {
		e.options = *o
	}
	return e
}

// Leadership is the lease of a leader. Its Err, Done and WithContext tell when it has ended. Safe for
// concurrent use.
type Leadership struct{ *holdfast.Lease }

// Campaign blocks until this candidate is elected, and returns its leadership. The context bounds
// the wait only (P11). If the store is fair, candidates are elected in the order in which they came
// (P8). The value is shown to others: up to holdfast.MaxNote bytes of UTF-8; "" stands for program,
// host and process id. The errors are those of holdfast.Lock.Acquire.
func (e *Election) Campaign(ctx context.Context, value string) (*Leadership, error) {
	o := e.options
	o.Note = value
	lease, err := e.client.Mutex(e.name, &o).Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return &Leadership{lease}, nil
}

// Do campaigns, runs fn as the leader and resigns. The context of fn ends when the leadership does.
// The error joins the errors of fn and of the resignation; the latter reports a loss.
func (e *Election) Do(
	ctx context.Context, value string, fn func(context.Context, *Leadership) error,
) (err error) {
	if fn == nil {
		return errors.New("election: do: the function is nil")
	}
	l, err := e.Campaign(ctx, value)
	if err != nil {
		return err
	}
	ctx, cancel := l.WithContext(ctx)
	defer func() {
		cancel()
		err = errors.Join(err, l.Resign())
	}()
	return fn(ctx, l)
}

// Resign gives up the office, and the next candidate is elected at once. It is
// holdfast.Lease.Release: idempotent, bounded, and it returns the loss, if any.
func (l *Leadership) Resign() error { return l.Release() }

// Leader is the present leader, as the store shows it.
type Leader struct {
	Vacant bool           // there is no leader; the other fields are zero
	Value  string         // the value of its Campaign
	Token  holdfast.Token // the leadership's fencing token; 0: the store gives none
}

// Leader asks the store for the present leader. When the answer arrives it may be out of date.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	info, err := e.client.Inspect(ctx, e.name)
	if err != nil {
		return Leader{}, err
	}
	return leaderOf(info), nil
}

// Observe yields the present leader or vacancy, and then every change, until the context ends, the
// client is closed or the caller stops. An error means that the leader is not known at present; the
// next answer follows it. Which errors there are and which changes may be missed is as with
// holdfast.Client.Watch.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		var last Leader
		known := false
		for info, err := range e.client.Watch(ctx, e.name) {
			var now Leader
			if err == nil {
				now = leaderOf(info)
				if known && now == last {
					continue
				}
			}
			if !yield(now, err) {
				return
			}
			last, known = now, err == nil
		}
	}
}

// leaderOf returns the exclusive holder as the leader.
func leaderOf(info holdfast.Info) Leader {
	for _, h := range info.Holders {
		if h.Mode == holdfast.Exclusive {
			return Leader{Value: h.Note, Token: h.Token}
		}
	}
	return Leader{Vacant: true}
}
