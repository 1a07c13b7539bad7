package chaos

import (
	"context"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

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
