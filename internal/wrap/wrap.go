// Package wrap helps to write drivers around other drivers, for faults, for measurements and for tests.
package wrap

import (
	"context"
	"iter"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/vote"
)

// Forward forwards every call to the driver that it embeds, those of the optional interfaces included, but not of
// vote.Keeper. Embed it in a wrapper, and override what the wrapper changes. [driver.As] finds those abilities that
// the inner driver has; the methods of the others return ErrUnsupported.
type Forward struct{ driver.Driver }

// Lacks tells driver.As which interfaces the inner driver does not have, but for hints, which it may just not
// give. A wrapper that adds an ability overrides it.
func (f Forward) Lacks(ability any) bool {
	switch ability.(type) {
	case *driver.Queuer:
		return lacks[driver.Queuer](f)
	case *driver.Notifier:
		return lacks[driver.Notifier](f)
	case *driver.Sharder:
		return lacks[driver.Sharder](f)
	case *driver.Operator:
		return lacks[driver.Operator](f)
	case *driver.Downgrader:
		return lacks[driver.Downgrader](f)
	case *driver.Watcher:
		return lacks[driver.Watcher](f)
	case *vote.Raiser:
		return lacks[vote.Raiser](f)
	}
	return false
}

func lacks[T any](f Forward) bool {
	_, ok := driver.As[T](f.Driver)
	return !ok
}

// Enqueue implements driver.Queuer.
func (f Forward) Enqueue(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if q, ok := driver.As[driver.Queuer](f.Driver); ok {
		return q.Enqueue(ctx, r)
	}
	return driver.Grant{}, driver.ErrUnsupported
}

// Wait implements driver.Queuer.
func (f Forward) Wait(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if q, ok := driver.As[driver.Queuer](f.Driver); ok {
		return q.Wait(ctx, r)
	}
	return driver.Grant{}, driver.ErrUnsupported
}

// Contended implements driver.ContentionHinter.
func (f Forward) Contended(name string) bool {
	s, ok := driver.As[driver.ContentionHinter](f.Driver)
	return ok && s.Contended(name)
}

// Wakes implements driver.Waker.
func (f Forward) Wakes(name string) driver.Wakes {
	if w, ok := driver.As[driver.Waker](f.Driver); ok {
		return w.Wakes(name)
	}
	return nil
}

// Losses implements driver.Notifier.
func (f Forward) Losses() <-chan driver.Loss {
	if n, ok := driver.As[driver.Notifier](f.Driver); ok {
		return n.Losses()
	}
	return nil
}

// Shard implements driver.Sharder.
func (f Forward) Shard(r driver.Request) string {
	if s, ok := driver.As[driver.Sharder](f.Driver); ok {
		return s.Shard(r)
	}
	return ""
}

// Inspect implements driver.Operator.
func (f Forward) Inspect(ctx context.Context, name string) (driver.Info, error) {
	if o, ok := driver.As[driver.Operator](f.Driver); ok {
		return o.Inspect(ctx, name)
	}
	return driver.Info{}, driver.ErrUnsupported
}

// List implements driver.Operator.
func (f Forward) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	if o, ok := driver.As[driver.Operator](f.Driver); ok {
		return o.List(ctx, prefix)
	}
	return func(yield func(driver.Info, error) bool) { yield(driver.Info{}, driver.ErrUnsupported) }
}

// Break implements driver.Operator.
func (f Forward) Break(ctx context.Context, name string, t driver.Token) error {
	if o, ok := driver.As[driver.Operator](f.Driver); ok {
		return o.Break(ctx, name, t)
	}
	return driver.ErrUnsupported
}

// Downgrade implements driver.Downgrader.
func (f Forward) Downgrade(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	if d, ok := driver.As[driver.Downgrader](f.Driver); ok {
		return d.Downgrade(ctx, g)
	}
	return driver.Grant{}, driver.ErrUnsupported
}

// Watch implements driver.Watcher.
func (f Forward) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	if w, ok := driver.As[driver.Watcher](f.Driver); ok {
		return w.Watch(ctx, name)
	}
	return nil, driver.ErrUnsupported
}

// Raise implements vote.Raiser.
func (f Forward) Raise(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	if r, ok := driver.As[vote.Raiser](f.Driver); ok {
		return r.Raise(ctx, grants)
	}
	renewals := make([]driver.Renewal, len(grants))
	for i := range renewals {
		renewals[i].Err = driver.ErrUnsupported
	}
	return renewals
}
