//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Inspect implements driver.Inspector.
func (c *client) Inspect(ctx context.Context, name string) (driver.Info, error) {
	info := driver.Info{Name: name}
	err := c.do(ctx, name, func(t *turn) error {
		info = t.Info(name, t.now)
		return nil
	})
	return info, err
}

// List implements driver.Inspector.
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
	files, err := s.files()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, file := range files {
		name, err := nameOf(file)
		if err == errHashed {
			st, err := s.peekFile(ctx, filepath.Join(s.names, file), "")
			if err != nil {
				return nil, err
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

// files returns the files in the directory of records.
func (s *store) files() ([]string, error) {
	dir, err := os.Open(s.names)
	if err != nil {
		return nil, explain(err, "", s.names)
	}
	defer dir.Close()
	files, err := dir.Readdirnames(-1)
	return files, explain(err, "", s.names)
}

// peek reads a record without changing it. The record may not be settled.
func (s *store) peek(ctx context.Context, name string) (*state, error) {
	return s.peekFile(ctx, filepath.Join(s.names, fileName(name)), name)
}

// peekFile reads a record file. An empty name takes the one in the record.
func (s *store) peekFile(ctx context.Context, path, name string) (*state, error) {
	room := s.room()
	defer s.rooms.Put(room)
	fd, err := openFD(path, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return &state{name: name}, nil
	}
	if err != nil {
		return nil, explain(err, name, path)
	}
	f := &file{fd: fd, path: path, page: room.page[:]}
	err = f.load()
	f.close()
	if err != nil || f.head.state != settled {
		// A change half done, or damage: the lock tells.
		if f, err = s.lock(ctx, path, room); err != nil {
			return nil, err
		}
		if f == nil {
			return &state{name: name}, nil
		}
		defer f.close()
	}
	return f.state(name)
}

// Break implements driver.Breaker.
func (c *client) Break(ctx context.Context, name string, token driver.Token) error {
	found := false // in any run of the turn
	return c.do(ctx, name, func(t *turn) error {
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

// peekName returns the name in a record file, or "" if that cannot be read.
func (s *store) peekName(path string) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	st, err := s.peekFile(ctx, path, "")
	if err != nil {
		return ""
	}
	return st.name
}
