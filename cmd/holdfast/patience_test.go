//go:build linux

package main

import (
	"context"
	"net/url"
	"sync"

	"github.com/holdfastlock/holdfast/driver"
)

// lateStore is a store whose first renewal is not answered in time.
type lateStore struct {
	driver.Forward
	once *sync.Once
}

func init() {
	driver.Register("late", func(ctx context.Context, u *url.URL) (driver.Driver, error) {
		file := *u
		file.Scheme = "file"
		d, err := driver.Open(ctx, &file)
		return lateStore{driver.Forward{Driver: d}, &sync.Once{}}, err
	})
}

// Renew renews late.
func (l lateStore) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	l.once.Do(func() { <-ctx.Done() })
	return l.Forward.Renew(ctx, grants)
}
