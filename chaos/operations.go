package chaos

import (
	"cmp"
	"context"
	"iter"
	"slices"

	"github.com/holdfastlock/holdfast/driver"
)

// through sends one request through the faults. It returns the first reply, or an error if the outcome is not known.
// Again says of a reply whether the request may arrive twice.
func through[Reply any](ctx context.Context, d *Driver, ask func(context.Context) Reply, again func(Reply) bool) (Reply, error) {
	replies := make(chan Reply, 3) // first, duplicate, late
	err := d.call(ctx, func(ctx context.Context) bool {
		r := ask(ctx)
		replies <- r
		return again == nil || again(r)
	})
	select {
	case r := <-replies:
		return r, err
	default:
		return *new(Reply), err
	}
}

type outcome struct {
	grant driver.Grant
	err   error
}

// Try implements driver.Driver.
func (d *Driver) Try(ctx context.Context, r driver.Request) (driver.Grant, error) {
	// A Try that is refused must not arrive again: if that one were granted, the
	// caller would have been told that it holds nothing (P6), and no store could
	// mend that.
	return d.acquire(ctx, r, d.Forward.Try, func(o outcome) bool { return o.err == nil })
}

// Enqueue implements driver.Queuer.
func (d *Driver) Enqueue(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if d.Lacks((*driver.Queuer)(nil)) {
		return driver.Grant{}, driver.ErrUnsupported
	}
	return d.acquire(ctx, r, d.Forward.Enqueue, nil)
}

// acquire is Try and Enqueue. If a request or its reply is lost, it returns ErrUncertain with
// the request to withdraw.
func (d *Driver) acquire(ctx context.Context, r driver.Request,
	ask func(context.Context, driver.Request) (driver.Grant, error), again func(outcome) bool,
) (driver.Grant, error) {
	o, err := through(ctx, d, func(ctx context.Context) outcome { g, err := ask(ctx, r); return outcome{g, err} }, again)
	if err != nil { // the driver below may have answered, but its caller must not learn of it
		return driver.Grant{Request: r, Handle: o.grant.Handle}, driver.Uncertain(err)
	}
	return o.grant, o.err
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
	out, err := through(ctx, d, func(ctx context.Context) []driver.Renewal { return do(ctx, grants) }, nil)
	if err != nil {
		return slices.Repeat([]driver.Renewal{{Err: err}}, len(grants))
	}
	return out
}

// Release implements driver.Driver. A batch is one request.
func (d *Driver) Release(ctx context.Context, grants []driver.Grant) []error {
	grants = slices.Clone(grants)
	out, err := through(ctx, d, func(ctx context.Context) []error { return d.Driver.Release(ctx, grants) }, nil)
	if err != nil {
		return slices.Repeat([]error{err}, len(grants))
	}
	return out
}

// Downgrade implements driver.Downgrader.
func (d *Driver) Downgrade(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	o, err := through(ctx, d, func(ctx context.Context) outcome { g, err := d.Forward.Downgrade(ctx, g); return outcome{g, err} }, nil)
	if err != nil {
		return driver.Grant{}, err
	}
	return o.grant, o.err
}

// Break implements driver.Operator.
func (d *Driver) Break(ctx context.Context, name string, token driver.Token) error {
	broken, err := through(ctx, d, func(ctx context.Context) error { return d.Forward.Break(ctx, name, token) }, nil)
	return cmp.Or(err, broken)
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
