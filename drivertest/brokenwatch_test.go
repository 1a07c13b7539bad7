package drivertest

import (
	"context"

	"github.com/holdfastlock/holdfast/driver"
)

// annotatesAny gives the note to the hold on the name, whichever owner has it.
func annotatesAny(b *bad, ctx context.Context, g driver.Grant) error {
	info, err := b.Forward.Inspect(ctx, g.Name)
	if err != nil || len(info.Holders) == 0 {
		return err
	}
	g.Owner = info.Holders[0].Owner
	return b.Forward.Annotate(ctx, g)
}

func annotateRenews(b *bad, ctx context.Context, g driver.Grant) error {
	long := g
	long.TTL *= 100
	if r := b.Driver.Renew(ctx, []driver.Grant{long})[0]; r.Err != nil {
		return r.Err
	}
	return b.Forward.Annotate(ctx, g)
}

func annotatesNothing(*bad, context.Context, driver.Grant) error { return nil }

func neverTold(_ *bad, ctx context.Context, _ string) (<-chan struct{}, error) {
	hints := make(chan struct{})
	context.AfterFunc(ctx, func() { close(hints) })
	return hints, nil
}

func watchesOn(b *bad, ctx context.Context, name string) (<-chan struct{}, error) {
	return b.Forward.Watch(context.WithoutCancel(ctx), name)
}

// toldAlways always has a hint ready.
func toldAlways(b *bad, ctx context.Context, _ string) (<-chan struct{}, error) {
	hints := make(chan struct{})
	b.wg.Go(func() {
		defer close(hints)
		for {
			select {
			case hints <- struct{}{}:
			case <-ctx.Done():
				return
			case <-b.stop:
				return
			}
		}
	})
	return hints, nil
}
