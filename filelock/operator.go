//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"strings"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/record"
)

// Inspecting and listing make, change and delete nothing: they read without a lock, and reckon what an
// operation would write down.

// view returns the directories for reading, nil if they do not exist, and a function that ends the use.
func (s *store) view(ctx context.Context) (p *place, done func(), err error) {
	if p := s.place.Load(); p != nil {
		return p, func() {}, nil
	}
	p, err = openPlace(ctx, s.dir, false)
	if err != nil {
		return nil, nil, err
	}
	if p.names != nil && p.clients != nil {
		return p, p.close, nil
	}
	p.close()
	return nil, func() {}, nil
}

// Inspect implements driver.Operator.
func (c *client) Inspect(ctx context.Context, name string) (driver.Info, error) {
	leave, err := c.enter(ctx)
	if err != nil {
		return driver.Info{}, err
	}
	defer leave()
	p, done, err := c.store.view(ctx)
	if err != nil {
		return driver.Info{Name: name}, err
	}
	defer done()
	if p == nil {
		return driver.Info{Name: name}, nil
	}
	info, err := c.inspect(ctx, p, fileName(name))
	if errors.Is(err, fs.ErrNotExist) {
		return driver.Info{Name: name}, nil
	}
	return info, explain(err, name, p.names.at(fileName(name)))
}

// inspect describes the record in a file.
func (c *client) inspect(ctx context.Context, p *place, file string) (driver.Info, error) {
	// The time before the reading, so that no hold seems expired that was renewed since it was read.
	now := storeTime(c.clock.Now())
	st, err := p.names.readRecord(ctx, file, newMemory(c.store))
	if err == nil {
		err = p.adopt(st, c.store.boot, now)
	}
	if err != nil {
		return driver.Info{}, err
	}
	// The holds and places that have ended by themselves end. Nothing is granted: only an operation does
	// that.
	queue := st.Queue
	st.Queue = nil
	st.Settle(now, &record.Rules{Poll: poll, Alive: p.alive})
	for i := range queue {
		if w := &queue[i]; now <= w.Until && (w.Client == "" || p.alive(w.Client)) {
			st.Queue = append(st.Queue, *w)
		}
	}
	return st.Info(st.name, storeTime(c.clock.Now())), nil
}

// List implements driver.Operator.
func (c *client) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		var files []string
		leave, err := c.enter(ctx)
		if err != nil {
			yield(driver.Info{}, err)
			return
		}
		p, done, err := c.store.view(ctx)
		if err == nil && p != nil {
			defer done()
			files, err = p.names.names()
		}
		leave()
		if err != nil {
			yield(driver.Info{}, explain(err, "", c.store.dir))
			return
		}
		begin := strings.TrimSuffix(fileName(prefix), suffix)
		for _, file := range files {
			if !strings.HasSuffix(file, suffix) || !strings.HasPrefix(file, begin) && !strings.HasPrefix(file, hashed) {
				continue
			}
			leave, err := c.enter(ctx)
			if err != nil {
				yield(driver.Info{}, err)
				return
			}
			info, err := c.inspect(ctx, p, file)
			leave()
			if errors.Is(err, fs.ErrNotExist) || err == nil && (info.Idle() || !strings.HasPrefix(info.Name, prefix)) {
				continue
			}
			if !yield(info, explain(err, "", p.names.at(file))) || err != nil {
				return
			}
		}
	}
}

// Break implements driver.Operator.
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
