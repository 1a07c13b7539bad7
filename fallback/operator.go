package fallback

import (
	"context"
	"iter"
	"slices"

	"github.com/holdfastlock/holdfast/driver"
)

// shown returns the stores to show holds of: the second while somebody may use it, then the first unless it
// is silent.
func (d *Driver) shown() (stores []forward) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mixed {
		stores = append(stores, forward{Driver: d.second})
	}
	if !d.open {
		stores = append(stores, forward{Driver: d.first})
	}
	return stores
}

// Inspect implements driver.Operator. It shows the store that is in use for the name.
func (d *Driver) Inspect(ctx context.Context, name string) (info driver.Info, err error) {
	err = d.silence()
	for _, store := range d.shown() {
		info, err = store.Inspect(ctx, name)
		if info = d.hide(store, info); err == nil && !info.Idle() {
			break
		}
	}
	return info, err
}

// hide hides the tokens of the second store: Break would look for them in the first (P4).
func (d *Driver) hide(store forward, info driver.Info) driver.Info {
	if store.Driver == d.second {
		info.Holders = slices.Clone(info.Holders)
		for i := range info.Holders {
			info.Holders[i].Token = 0
		}
	}
	return info
}

// List implements driver.Operator. A name that is in use in both stores is shown twice.
func (d *Driver) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		stores := d.shown()
		if len(stores) == 0 {
			yield(driver.Info{}, d.silence())
		}
		for _, store := range stores {
			for info, err := range store.List(ctx, prefix) {
				if !yield(d.hide(store, info), err) || err != nil {
					return
				}
			}
		}
	}
}

// Break implements driver.Operator. It breaks holds of the first store, whose tokens are shown.
func (d *Driver) Break(ctx context.Context, name string, token driver.Token) error {
	for _, store := range d.shown() {
		if store.Driver != d.second {
			return store.Break(ctx, name, token)
		}
	}
	return d.silence()
}
