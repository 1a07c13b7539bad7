package chaos

import (
	"context"
	"iter"
	"slices"

	"github.com/holdfastlock/holdfast/driver"
)

// Try implements driver.Driver.
func (d *Driver) Try(ctx context.Context, r driver.Request) (driver.Grant, error) {
	// A Try that is refused must not arrive again: if that one were granted, the
	// caller would have been told that it holds nothing (P6), and no store could
	// mend that.
	return d.acquire(ctx, r, d.Forward.Try, false)
}

// Enqueue implements driver.Queuer.
func (d *Driver) Enqueue(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if d.Lacks((*driver.Queuer)(nil)) {
		return driver.Grant{}, driver.ErrUnsupported
	}
	return d.acquire(ctx, r, d.Forward.Enqueue, true)
}

// acquire is Try and Enqueue. If a request or its reply is lost, it returns ErrUncertain with
// the request to withdraw.
func (d *Driver) acquire(ctx context.Context, r driver.Request,
	ask func(context.Context, driver.Request) (driver.Grant, error), refusedTwice bool,
) (driver.Grant, error) {
	reply := make(chan outcome, 3) // first, duplicate, late
	err := d.call(ctx, func(ctx context.Context) bool {
		g, err := ask(ctx, r)
		reply <- outcome{g, err}
		return err == nil || refusedTwice
	})
	if err != nil {
		lost := driver.Grant{Request: r}
		select {
		case o := <-reply: // the driver below has answered, but its caller must not learn of it
			lost.Handle = o.grant.Handle
		default:
		}
		return lost, driver.Uncertain(err)
	}
	first := <-reply
	return first.grant, first.err
}

type outcome struct {
	grant driver.Grant
	err   error
}

// Wait implements driver.Queuer. A wake-up is a push: it cannot be sent twice,
// and it does not come through a partition.
func (d *Driver) Wait(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if err := d.cut(ctx); err != nil {
		return driver.Grant{}, err
	}
	g, err := d.Forward.Wait(ctx, r)
	if err := d.pause(ctx, d.at(&d.replies)); err != nil {
		return driver.Grant{}, err
	}
	if err := d.cut(ctx); err != nil {
		return driver.Grant{}, err
	}
	return g, err
}

// Renew implements driver.Driver. A batch is one request.
func (d *Driver) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	return d.renew(ctx, grants, d.Driver.Renew)
}

// Raise implements vote.Raiser. A batch is one request.
func (d *Driver) Raise(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	return d.renew(ctx, grants, d.Forward.Raise)
}

func (d *Driver) renew(
	ctx context.Context, grants []driver.Grant, do func(context.Context, []driver.Grant) []driver.Renewal,
) []driver.Renewal {
	grants = slices.Clone(grants) // a request held back may outlive the call
	reply := make(chan []driver.Renewal, 3)
	if err := d.call(ctx, func(ctx context.Context) bool { reply <- do(ctx, grants); return true }); err != nil {
		out := make([]driver.Renewal, len(grants))
		for i := range out {
			out[i].Err = err
		}
		return out
	}
	return <-reply
}

// Release implements driver.Driver. A batch is one request.
func (d *Driver) Release(ctx context.Context, grants []driver.Grant) []error {
	grants = slices.Clone(grants)
	reply := make(chan []error, 3)
	if err := d.call(ctx, func(ctx context.Context) bool { reply <- d.Driver.Release(ctx, grants); return true }); err != nil {
		out := make([]error, len(grants))
		for i := range out {
			out[i] = err
		}
		return out
	}
	return <-reply
}

// Downgrade implements driver.Downgrader.
func (d *Driver) Downgrade(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	reply := make(chan outcome, 3)
	err := d.call(ctx, func(ctx context.Context) bool {
		g, err := d.Forward.Downgrade(ctx, g)
		reply <- outcome{g, err}
		return true
	})
	if err != nil {
		return driver.Grant{}, err
	}
	first := <-reply
	return first.grant, first.err
}

// Break implements driver.Operator.
func (d *Driver) Break(ctx context.Context, name string, token driver.Token) error {
	reply := make(chan error, 3)
	if err := d.call(ctx, func(ctx context.Context) bool { reply <- d.Forward.Break(ctx, name, token); return true }); err != nil {
		return err
	}
	return <-reply
}

// Watch implements driver.Watcher. A partition makes it fail. Hints still arrive during a later
// partition.
func (d *Driver) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	if err := d.cut(ctx); err != nil {
		return nil, err
	}
	return d.Forward.Watch(ctx, name)
}

// Inspect implements driver.Operator. A partition makes it fail; other faults do not affect
// it, so that tests can inspect the store meanwhile.
func (d *Driver) Inspect(ctx context.Context, name string) (driver.Info, error) {
	if err := d.cut(ctx); err != nil {
		return driver.Info{}, err
	}
	return d.Forward.Inspect(ctx, name)
}

// List implements driver.Operator, like Inspect.
func (d *Driver) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		if err := d.cut(ctx); err != nil {
			yield(driver.Info{}, err)
			return
		}
		d.Forward.List(ctx, prefix)(yield)
	}
}
