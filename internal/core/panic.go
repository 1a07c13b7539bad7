package core

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/holdfastlock/holdfast/driver"
)

// This file calls the driver in the background. A panic of the driver there would end the process,
// and no caller could recover it: it is logged, and counts as an error of the call. A panic in a
// call on a caller's goroutine is the caller's.

// guarded calls f, which calls the driver's method of that name, and returns a panic as an error.
func (c *Core) guarded(method string, f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the driver's %s panicked: %v", method, p)
			c.Panicked(method, p, debug.Stack())
		}
	}()
	f()
	return nil
}

// renewAll renews grants. The results are at least as many as the grants.
func (c *Core) renewAll(ctx context.Context, grants []driver.Grant) (out []driver.Renewal) {
	err := c.guarded("Renew", func() { out = c.Driver.Renew(ctx, grants) })
	if err == nil {
		err = errors.New("the driver returned too few renewals")
	}
	for len(out) < len(grants) {
		out = append(out, driver.Renewal{Err: err})
	}
	return out
}

// releaseAll releases grants. The results are at least as many as the grants.
func (c *Core) releaseAll(ctx context.Context, grants []driver.Grant) (errs []error) {
	err := c.guarded("Release", func() { errs = c.Driver.Release(ctx, grants) })
	if err == nil {
		err = errors.New("the driver returned too few results")
	}
	for len(errs) < len(grants) {
		errs = append(errs, err)
	}
	return errs
}

// shardOf returns the shard of a request, or "" if the driver panics: then renewals of different
// shards may wait for one another, but none is lost by that.
func (c *Core) shardOf(r driver.Request) (shard string) {
	_ = c.guarded("Shard", func() { shard = c.sharder.Shard(r) })
	return shard
}
