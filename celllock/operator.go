package celllock

import (
	"context"
	"iter"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/driver"
)

// Break implements driver.Operator.
func (c *client) Break(ctx context.Context, name string, token driver.Token) error {
	if err := c.alive(ctx); err != nil {
		return err
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	// Not repeated: the second call would not find what the first has broken.
	return c.translate(name, c.cell.Do(ctx, false, func(ctx context.Context, m *cell.Member) error {
		_, err := m.Locks.Break(ctx, &cellv1.BreakRequest{Name: c.in(name), Token: int64(token)})
		return err
	}))
}

// Inspect implements driver.Operator.
func (c *client) Inspect(ctx context.Context, name string) (driver.Info, error) {
	if err := c.alive(ctx); err != nil {
		return driver.Info{}, err
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	var lock *cellv1.Lock
	err := c.cell.Do(ctx, true, func(ctx context.Context, m *cell.Member) error {
		r, err := m.Locks.Inspect(ctx, &cellv1.InspectRequest{Name: c.in(name)})
		if err == nil {
			lock = r.Lock
		}
		return err
	})
	if err != nil {
		return driver.Info{}, c.translate(name, err)
	}
	return c.info(lock), nil
}

// info is what the cell shows of a name.
func (c *client) info(l *cellv1.Lock) driver.Info {
	info := driver.Info{Name: c.out(l.GetName()), Slots: int(l.GetSlots()), ClosedFor: l.GetClosedFor().AsDuration()}
	for _, h := range l.GetHolders() {
		info.Holders = append(info.Holders, driver.Holder{
			Owner: h.Request, Mode: driverMode(h.Mode), Permits: int(h.Permits), Token: driver.Token(h.Token),
			Note: h.Note, Held: h.Held.AsDuration(), Expires: h.Expires.AsDuration(),
		})
	}
	for _, w := range l.GetWaiters() {
		info.Waiters = append(info.Waiters, driver.Waiter{
			Owner: w.Request, Mode: driverMode(w.Mode), Permits: int(w.Permits), Note: w.Note, Waiting: w.Waiting.AsDuration(),
		})
	}
	return info
}

func driverMode(m cellv1.Mode) driver.Mode {
	for mode, its := range modeOf {
		if its == m {
			return mode
		}
	}
	return driver.Exclusive
}

// List implements driver.Operator.
func (c *client) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		after := ""
		if c.options.Prefix != "" {
			prefix = c.options.Prefix + "/" + prefix
		}
		for {
			page, err := c.page(ctx, prefix, after)
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
			if !page.More || len(page.Locks) == 0 {
				return
			}
		}
	}
}

func (c *client) page(ctx context.Context, prefix, after string) (page *cellv1.LocksListResponse, err error) {
	if err := c.alive(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	err = c.cell.Do(ctx, true, func(ctx context.Context, m *cell.Member) error {
		r, err := m.Locks.List(ctx, &cellv1.LocksListRequest{Prefix: prefix, After: after})
		if err == nil {
			page = r
		}
		return err
	})
	return page, err
}

// watchFor is for how long one call waits for a change.
const watchFor = 30 * time.Second

// Watch implements driver.Watcher.
func (c *client) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	rev, _, err := c.changed(ctx, name, 0)
	if err != nil {
		return nil, err
	}
	hints := make(chan struct{}, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		return nil, driver.ErrClosed
	}
	c.working.Go(func() {
		defer close(hints)
		for ctx.Err() == nil && c.life.Err() == nil {
			now, happened, err := c.changed(ctx, name, rev)
			if err != nil {
				if !sleep(ctx, c.life, c.caps.Poll/8) {
					return
				}
				rev, happened = 1, true // what was missed is not known
			} else {
				rev = now
			}
			if happened {
				select {
				case hints <- struct{}{}:
				default: // there is one that nobody has taken yet
				}
			}
		}
	})
	return hints, nil
}

// changed waits until a name has changed since a revision.
func (c *client) changed(ctx context.Context, name string, since int64) (rev int64, happened bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, watchFor+requestWithin)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	err = c.cell.DoParked(ctx, func(ctx context.Context, m *cell.Member) error {
		r, err := m.Locks.Watch(ctx, &cellv1.WatchRequest{
			Name: c.in(name), Revision: since, Wait: durationpb.New(watchFor),
		})
		if err == nil {
			rev, happened = r.Revision, r.Lock != nil
		}
		return err
	})
	return rev, happened, c.translate(name, err)
}

// sleep waits for d. It returns false if a context ends first.
func sleep(ctx, life context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-life.Done():
	}
	return false
}
