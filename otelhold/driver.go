package otelhold

import (
	"context"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/wrap"
)

// observed is a driver whose renewals and releases are measured.
type observed struct {
	wrap.Forward
	o *observer
}

// Renew implements driver.Driver.
func (d observed) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	began := time.Now()
	renewals := d.Driver.Renew(ctx, grants)
	kind := ""
	took := time.Since(began)
	for i := range renewals {
		failed := kindOf(renewals[i].Err)
		d.o.renewHolds.Add(ctx, 1, d.o.sets.of(labels{err: failed}))
		if kind == "" {
			kind = failed
		}
	}
	d.o.renewDuration.Record(ctx, took.Seconds(), d.o.sets.of(labels{err: kind}))
	return renewals
}

// Release implements driver.Driver.
func (d observed) Release(ctx context.Context, grants []driver.Grant) []error {
	began := time.Now()
	errs := d.Driver.Release(ctx, grants)
	kind := ""
	took := time.Since(began)
	for _, err := range errs {
		if kind == "" {
			kind = kindOf(err)
		}
	}
	d.o.releaseDuration.Record(ctx, took.Seconds(), d.o.sets.of(labels{err: kind}))
	return errs
}
