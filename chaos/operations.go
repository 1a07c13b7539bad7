package chaos

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

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

// fate says which faults one call gets.
type fate struct {
	delay, hold                       time.Duration
	dropRequest, dropReply, duplicate bool
}

// roll decides a call's fate. It always draws as many random numbers, so that one option does
// not change what another does under the same seed.
func (d *Driver) roll() fate {
	d.mu.Lock()
	defer d.mu.Unlock()
	happens := func(p float64) bool { return d.random.Float64() < p }
	lasts := func() time.Duration { return time.Duration(d.random.Int64N(int64(d.options.MaxDelay)) + 1) }
	o := &d.options
	var f fate
	delayed, delay := happens(o.Delay), lasts()
	held, hold := happens(o.HoldReply), lasts()
	f.dropRequest, f.dropReply, f.duplicate = happens(o.DropRequest), happens(o.DropReply), happens(o.Duplicate)
	if delayed {
		f.delay = delay
	}
	if held {
		f.hold = hold
	}
	cut, lasting := happens(o.Partition), lasts()
	if cut && d.partition.opened == nil && !d.isClosed {
		d.partition.close()
		d.heal = time.AfterFunc(lasting, d.Heal)
	}
	return f
}

// at returns the channel that is closed when a gate opens, or nil if the gate is open.
func (d *Driver) at(g *gate) <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return g.opened
}

// pause waits until a channel is closed, or not at all for nil. It returns an error if the
// context or the driver ended first.
func (d *Driver) pause(ctx context.Context, event <-chan struct{}) error {
	if event == nil {
		return nil
	}
	select {
	case <-event:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-d.closed:
		return driver.ErrClosed
	}
}

func (d *Driver) sleep(ctx context.Context, long time.Duration) error {
	if long == 0 {
		return nil
	}
	over := make(chan struct{})
	defer time.AfterFunc(long, func() { close(over) }).Stop()
	return d.pause(ctx, over)
}

// cut waits for the end of a partition if there is one, and then fails the call.
func (d *Driver) cut(ctx context.Context) error {
	opened := d.at(&d.partition)
	if opened == nil {
		return nil
	}
	if err := d.pause(ctx, opened); err != nil {
		return err
	}
	return ErrPartitioned
}

// call runs one call with its faults. A nil error means that do was called and that its reply
// counts; any other, that the outcome is not known. Do returns whether the request may arrive
// twice.
func (d *Driver) call(ctx context.Context, do func(context.Context) (twice bool)) error {
	f := d.roll()
	if err := d.sleep(ctx, f.delay); err != nil {
		return err
	}
	if err := d.cut(ctx); err != nil {
		return err
	}
	if f.dropRequest {
		return ErrLost
	}
	if err := d.arrive(ctx, do); err != nil {
		return err
	}
	if twice := do(ctx); twice && f.duplicate {
		do(ctx)
	}
	if f.dropReply {
		return ErrLost
	}
	if err := d.sleep(ctx, f.hold); err != nil {
		return err
	}
	if err := d.pause(ctx, d.at(&d.replies)); err != nil {
		return err
	}
	return d.cut(ctx)
}

// arrive waits until requests are let through. If the context ends first, do is called later
// all the same.
func (d *Driver) arrive(ctx context.Context, do func(context.Context) bool) error {
	opened := d.at(&d.requests)
	err := d.pause(ctx, opened)
	if err == nil {
		return nil
	}
	d.mu.Lock()
	if opened == d.requests.opened && !d.isClosed {
		d.late = append(d.late, func() { do(context.WithoutCancel(ctx)) })
	}
	d.mu.Unlock()
	return err
}
