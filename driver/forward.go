package driver

import (
	"context"
	"iter"
	"time"
)

// Forward forwards every call to the driver that it embeds, the optional interfaces included. Embed
// it in a wrapper, for fault injection or metrics, and override what the wrapper changes: the inner
// driver's abilities are never hidden. What the inner driver cannot do returns ErrUnsupported, as
// its [Caps.Ops] say already.
type Forward struct{ Driver }

// As returns d as the optional interface T, if d's Caps list op and d has the methods.
func As[T any](d Driver, op Ops) (T, bool) {
	t, ok := d.(T)
	if !ok || !d.Caps().Ops.Has(op) {
		var zero T
		return zero, false
	}
	return t, true
}

// Enqueue implements Queuer.
func (f Forward) Enqueue(ctx context.Context, r Request) (Grant, error) {
	if q, ok := As[Queuer](f.Driver, OpQueue); ok {
		return q.Enqueue(ctx, r)
	}
	return Grant{}, ErrUnsupported
}

// Wait implements Queuer.
func (f Forward) Wait(ctx context.Context, r Request) (Grant, error) {
	if q, ok := As[Queuer](f.Driver, OpQueue); ok {
		return q.Wait(ctx, r)
	}
	return Grant{}, ErrUnsupported
}

// Contended implements ContentionHinter. It is false if the inner driver does not implement it.
func (f Forward) Contended(name string) bool {
	s, ok := As[ContentionHinter](f.Driver, OpQueue)
	return ok && s.Contended(name)
}

// Wakes implements Waker. It is nil if the inner driver does not implement it.
func (f Forward) Wakes(name string) Wakes {
	if w, ok := f.Driver.(Waker); ok {
		return w.Wakes(name)
	}
	return nil
}

// Losses implements Notifier. Without OpNotify the channel is nil.
func (f Forward) Losses() <-chan Loss {
	if n, ok := As[Notifier](f.Driver, OpNotify); ok {
		return n.Losses()
	}
	return nil
}

// Shard implements Sharder. Without OpShard every request belongs to the one shard "".
func (f Forward) Shard(r Request) string {
	if s, ok := As[Sharder](f.Driver, OpShard); ok {
		return s.Shard(r)
	}
	return ""
}

// Inspect implements Inspector.
func (f Forward) Inspect(ctx context.Context, name string) (Info, error) {
	if i, ok := As[Inspector](f.Driver, OpInspect); ok {
		return i.Inspect(ctx, name)
	}
	return Info{}, ErrUnsupported
}

// List implements Inspector.
func (f Forward) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	if i, ok := As[Inspector](f.Driver, OpInspect); ok {
		return i.List(ctx, prefix)
	}
	return func(yield func(Info, error) bool) { yield(Info{}, ErrUnsupported) }
}

// Break implements Breaker.
func (f Forward) Break(ctx context.Context, name string, t Token) error {
	if b, ok := As[Breaker](f.Driver, OpBreak); ok {
		return b.Break(ctx, name, t)
	}
	return ErrUnsupported
}

// Downgrade implements Downgrader.
func (f Forward) Downgrade(ctx context.Context, g Grant) (Grant, error) {
	if d, ok := As[Downgrader](f.Driver, OpDowngrade); ok {
		return d.Downgrade(ctx, g)
	}
	return Grant{}, ErrUnsupported
}

// Vote implements Voter.
func (f Forward) Vote(ctx context.Context, r Request, life Life) (Grant, bool, error) {
	if v, ok := As[Voter](f.Driver, OpVote); ok {
		return v.Vote(ctx, r, life)
	}
	return Grant{}, false, ErrUnsupported
}

// Life implements Voter.
func (f Forward) Life(ctx context.Context, longest time.Duration) (Life, bool, time.Duration, error) {
	if v, ok := As[Voter](f.Driver, OpVote); ok {
		return v.Life(ctx, longest)
	}
	return 0, false, 0, ErrUnsupported
}

// Admit implements Voter.
func (f Forward) Admit(ctx context.Context, life Life) error {
	if v, ok := As[Voter](f.Driver, OpVote); ok {
		return v.Admit(ctx, life)
	}
	return ErrUnsupported
}

// Durable implements Voter.
func (f Forward) Durable(ctx context.Context) (bool, error) {
	if v, ok := As[Voter](f.Driver, OpVote); ok {
		return v.Durable(ctx)
	}
	return false, ErrUnsupported
}

// Raise implements Raiser.
func (f Forward) Raise(ctx context.Context, grants []Grant) []Renewal {
	if r, ok := As[Raiser](f.Driver, OpRaise); ok {
		return r.Raise(ctx, grants)
	}
	renewals := make([]Renewal, len(grants))
	for i := range renewals {
		renewals[i].Err = ErrUnsupported
	}
	return renewals
}

// Watch implements Watcher.
func (f Forward) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	if w, ok := As[Watcher](f.Driver, OpWatch); ok {
		return w.Watch(ctx, name)
	}
	return nil, ErrUnsupported
}
