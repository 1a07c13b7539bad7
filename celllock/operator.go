package celllock

import (
	"context"
	"iter"

	"github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/cell/cellv1/cellv1connect"
	"github.com/holdfastlock/holdfast/driver"
)

// Break implements driver.Operator.
func (c *client) Break(ctx context.Context, name string, token driver.Token) error {
	// Not repeated: the second call would not find what the first has broken.
	_, err := call(ctx, c, false, cellv1connect.LocksClient.Break, &cellv1.BreakRequest{Name: c.prefix + name, Token: int64(token)})
	return c.translate(name, err)
}

// Inspect implements driver.Operator.
func (c *client) Inspect(ctx context.Context, name string) (driver.Info, error) {
	r, err := call(ctx, c, true, cellv1connect.LocksClient.Inspect, &cellv1.InspectRequest{Name: c.prefix + name})
	if err != nil {
		return driver.Info{}, c.translate(name, err)
	}
	return c.info(r.Lock), nil
}

// info is what the cell shows of a name.
func (c *client) info(l *cellv1.Lock) driver.Info {
	info := cell.DriverInfo(l)
	info.Name = c.out(info.Name)
	return info
}

// List implements driver.Operator.
func (c *client) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		for after, more := "", true; more; {
			page, err := call(ctx, c, true, cellv1connect.LocksClient.List,
				&cellv1.LocksListRequest{Prefix: c.prefix + prefix, After: after})
			if err != nil {
				yield(driver.Info{}, c.translate(prefix, err))
				return
			}
			for _, l := range page.Locks {
				after = l.Name
				if info := c.info(l); !info.Idle() && !yield(info, nil) {
					return
				}
			}
			more = page.More && len(page.Locks) > 0
		}
	}
}
