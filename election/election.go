package election

import (
	"context"
	"errors"
	"iter"

	"github.com/holdfastlock/holdfast"
)

// Election is one office, under the name of a lock. It holds no state and does
// no I/O by itself. Safe for concurrent use.
type Election struct {
	client  *holdfast.Client
	name    string
	options holdfast.Options
}

// New returns the election of a name. Options are those of the lock, nil for the
// defaults; the Note is not used. Candidates and observers need not have the
// same options.
func New(c *holdfast.Client, name string, o *holdfast.Options) *Election {
	e := &Election{client: c, name: name}
	if o != nil {
		e.options = *o
	}
	return e
}

// Leadership is the lease of a leader. Its Err, Done and WithContext tell of its
// end. Safe for concurrent use.
type Leadership struct{ *holdfast.Lease }

// Campaign waits until it is elected, or the context ends, which bounds the wait
// only (P11). Candidates are elected in the order in which they came, where the
// store is fair (P8). Others see the value: up to holdfast.MaxNote bytes of
// UTF-8, "" for program, host and process id. The errors are those of
// holdfast.Lock.Acquire.
func (e *Election) Campaign(ctx context.Context, value string) (*Leadership, error) {
	o := e.options
	o.Note = value
	lease, err := e.client.Mutex(e.name, &o).Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return &Leadership{lease}, nil
}

// Do campaigns, runs fn as the leader and resigns. The context of fn ends when
// the leadership does. The error joins that of fn and that of the resignation,
// which tells of a loss.
func (e *Election) Do(ctx context.Context, value string, fn func(context.Context, *Leadership) error) (err error) {
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

// Proclaim changes the value that others see. The token stays. It returns
// holdfast.ErrUnsupported where the store cannot change it, and what Err returns
// if the leadership is over.
func (l *Leadership) Proclaim(ctx context.Context, value string) error {
	return l.SetNote(ctx, value)
}

// Resign gives the office up; the next candidate is elected at once. It is
// holdfast.Lease.Release: idempotent, bounded, and it returns the loss, if any.
func (l *Leadership) Resign() error { return l.Release() }

// Leader is who leads, as the store shows it.
type Leader struct {
	Vacant bool           // nobody leads: the rest is zero
	Value  string         // of the last Campaign or Proclaim
	Token  holdfast.Token // of the leadership; 0: the store gives none
}

// Leader asks the store who leads now. The answer is about the past by the time
// it arrives.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	info, err := e.client.Inspect(ctx, e.name)
	if err != nil {
		return Leader{}, err
	}
	return leaderOf(info), nil
}

// Observe yields who leads: the present answer first, vacancies too, and then
// every change, until the context or the client ends or the caller stops. Errors and what may be
// missed are those of holdfast.Client.Watch: an error says that who leads is not known at present, and the
// next answer follows it.
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

// leaderOf finds the leadership among the holds: the exclusive one.
func leaderOf(info holdfast.Info) Leader {
	for _, h := range info.Holders {
		if h.Mode == holdfast.Exclusive {
			return Leader{Value: h.Note, Token: h.Token}
		}
	}
	return Leader{Vacant: true}
}
