//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"strings"

	"github.com/holdfastlock/holdfast/driver"
)

// Inspect implements driver.Inspector. It changes nothing.
func (c *client) Inspect(ctx context.Context, name string) (driver.Info, error) {
	leave, err := c.enter(ctx)
	if err != nil {
		return driver.Info{}, err
	}
	defer leave()
	p, err := c.store.view()
	if p == nil || err != nil {
		return driver.Info{Name: name}, err
	}
	// The time before the reading, so that no hold seems expired that was renewed
	// since it was read.
	now := storeTime(c.clock.Now())
	st, err := c.store.stateOf(ctx, p, fileName(name), name, now)
	if err != nil {
		return driver.Info{}, err
	}
	info := st.Info(name, now)
	for i := range info.Holders {
		info.Holders[i].Held = max(0, info.Holders[i].Held)
	}
	for i := range info.Waiters {
		info.Waiters[i].Waiting = max(0, info.Waiters[i].Waiting)
	}
	return info, nil
}

// List implements driver.Inspector. It changes nothing.
func (c *client) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		leave, err := c.enter(ctx)
		if err != nil {
			yield(driver.Info{}, err)
			return
		}
		names, err := c.store.list(ctx, prefix)
		leave()
		if err != nil {
			yield(driver.Info{}, err)
			return
		}
		for _, name := range names {
			info, err := c.Inspect(ctx, name)
			if err == nil && info.Idle() {
				continue
			}
			if !yield(info, err) || err != nil {
				return
			}
		}
	}
}

// list returns the names that have a record and begin with prefix.
func (s *store) list(ctx context.Context, prefix string) ([]string, error) {
	p, err := s.view()
	if p == nil || err != nil {
		return nil, err
	}
	files, err := p.names.names()
	if err != nil {
		return nil, explain(err, "", p.names.path)
	}
	var names []string
	for _, file := range files {
		name, err := nameOf(file)
		if err == errHashed {
			st, err := p.names.readRecord(ctx, file, nil, parseHead)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, explain(err, "", p.names.at(file))
			}
			name = st.name
		} else if err != nil {
			continue // not ours, or of no use here
		}
		if name != "" && strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	return names, nil
}

// Break implements driver.Breaker.
func (c *client) Break(ctx context.Context, name string, token driver.Token) error {
	found := false // in any run of the operation
	return c.do(ctx, name, func(t *operation) error {
		if h, ok := t.Record.Break(token); ok {
			found = true
			t.broken = append(t.broken, broken{h.Owner, h.Expires})
			t.settle()
		}
		if !found {
			return driver.ErrNotHeld
		}
		return nil
	})
}
