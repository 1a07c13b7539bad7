package fallback

import (
	"context"
	"iter"

	"github.com/holdfastlock/holdfast/driver"
)

// Losses implements driver.Notifier. With a second store the losses of each are told on one channel.
func (d *Driver) Losses() <-chan driver.Loss {
	if d.second == nil {
		return driver.Forward{Driver: d.first}.Losses()
	}
	return d.losses
}

// hear passes on the losses that one of the two drivers tells.
func (d *Driver) hear(from driver.Driver) {
	n, ok := driver.As[driver.Notifier](from, driver.OpNotify)
	if !ok || !d.caps.Ops.Has(driver.OpNotify) {
		return
	}
	losses := n.Losses()
	d.background.Go(func() {
		for {
			select {
			case loss, ok := <-losses:
				if !ok {
					return
				}
				select {
				case d.losses <- loss:
				case <-d.life.Done():
					return
				}
			case <-d.life.Done():
				return
			}
		}
	})
}

// shownFrom returns the drivers to show holds of, in this order, and an error if the store in use
// cannot be asked.
func (d *Driver) shownFrom() (first, second driver.Driver, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.state == StateOpen && d.second == nil:
		return nil, nil, d.silentLocked()
	case d.state == StateOpen:
		return nil, d.second, nil
	case d.state == StateHalfOpen && d.second != nil:
		return d.first, d.second, nil
	}
	return d.first, nil, nil
}

// Inspect implements driver.Inspector. It shows the store that is in use for the name.
func (d *Driver) Inspect(ctx context.Context, name string) (driver.Info, error) {
	first, second, err := d.shownFrom()
	if err != nil {
		return driver.Info{}, err
	}
	if second != nil {
		info, err := driver.Forward{Driver: second}.Inspect(ctx, name)
		if err == nil && !info.Idle() || first == nil {
			return withoutTokens(info), err
		}
	}
	var info driver.Info
	err = d.count(driver.Request{Name: name}, func() (err error) {
		info, err = driver.Forward{Driver: first}.Inspect(ctx, name)
		return err
	})
	return info, err
}

// withoutTokens hides the tokens of the second store: Break would look for them in the first.
func withoutTokens(info driver.Info) driver.Info {
	holders := make([]driver.Holder, len(info.Holders))
	for i, h := range info.Holders {
		h.Token = 0
		holders[i] = h
	}
	info.Holders = holders
	return info
}

// List implements driver.Inspector.
func (d *Driver) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		first, second, err := d.shownFrom()
		if err != nil {
			yield(driver.Info{}, err)
			return
		}
		shown := map[string]bool{}
		if second != nil {
			for info, err := range (driver.Forward{Driver: second}).List(ctx, prefix) {
				if err != nil && first != nil {
					break // the first store is in use
				}
				if info.Idle() && err == nil {
					continue
				}
				shown[info.Name] = true
				if !yield(withoutTokens(info), err) || err != nil {
					return
				}
			}
		}
		if first == nil {
			return
		}
		for info, err := range (driver.Forward{Driver: first}).List(ctx, prefix) {
			if err == nil && shown[info.Name] {
				continue
			}
			if !yield(info, err) || err != nil {
				return
			}
		}
	}
}

// Break implements driver.Breaker. It breaks holds of the first store, whose tokens are shown.
func (d *Driver) Break(ctx context.Context, name string, token driver.Token) error {
	if d.isOpen() {
		return d.silence()
	}
	return d.ask(driver.Request{Name: name}, func(f driver.Forward) error {
		return f.Break(ctx, name, token)
	})
}

// Watch implements driver.Watcher. It tells changes in both stores, and of the breaker. While the breaker is open the
// first store is not asked: then the watch tells changes in the second, and ends with the next change of the
// breaker, so that the caller watches anew.
func (d *Driver) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	if d.second == nil {
		return driver.Forward{Driver: d.first}.Watch(ctx, name)
	}
	d.mu.Lock()
	first, open, changed := d.first, d.state == StateOpen, d.changed
	d.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	var a <-chan struct{} // nil: the first store is silent
	b, err := driver.Forward{Driver: d.second}.Watch(ctx, name)
	if err == nil && !open {
		a, err = driver.Forward{Driver: first}.Watch(ctx, name)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	hints := make(chan struct{}, 1)
	go func() {
		defer close(hints)
		defer cancel()
		for more := true; ; {
			select {
			case _, more = <-a:
			case _, more = <-b:
			case <-changed:
				if open {
					return
				}
				d.mu.Lock()
				changed = d.changed
				d.mu.Unlock()
			}
			if !more {
				return // both end with the context and the driver
			}
			select {
			case hints <- struct{}{}:
			default: // one that nobody has received yet is enough
			}
		}
	}()
	return hints, nil
}
