package otelhold_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/wrap"
	"github.com/holdfastlock/holdfast/memlock"
	"github.com/holdfastlock/holdfast/otelhold"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a store in virtual time, a client of it that is measured, and what was measured.
type rig struct {
	testing.TB
	clock  virtualClock
	store  *memlock.Store
	driver *silenced
	reader *metric.ManualReader
	spans  *tracetest.SpanRecorder
	*holdfast.Client
}

type virtualClock struct{ start time.Time }

func (c virtualClock) Now() driver.Instant { return driver.Instant(time.Since(c.start)) }

// silenced is a driver whose store refuses renewals while it is silent, and releases if it is told to.
type silenced struct {
	wrap.Forward
	silent, failRelease atomic.Bool
}

// Release implements driver.Driver.
func (d *silenced) Release(ctx context.Context, grants []driver.Grant) []error {
	if !d.failRelease.Load() {
		return d.Driver.Release(ctx, grants)
	}
	errs := make([]error, len(grants))
	for i := range errs {
		errs[i] = errors.New("the store is silent")
	}
	return errs
}

func (d *silenced) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	if !d.silent.Load() {
		return d.Driver.Renew(ctx, grants)
	}
	renewals := make([]driver.Renewal, len(grants))
	for i := range renewals {
		renewals[i].Err = errors.New("the store is silent")
	}
	return renewals
}

// inRig runs a test in virtual time.
func inRig(t *testing.T, c *holdfast.ClientOptions, o *otelhold.Options, test func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{TB: t, clock: virtualClock{time.Now()}, reader: metric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
		r.store = memlock.NewStore(&memlock.Options{Clock: r.clock, TokenBlock: 4})
		r.driver = &silenced{Forward: wrap.Forward{Driver: r.store.Client()}}
		client, options := holdfast.ClientOptions{}, otelhold.Options{}
		if c != nil {
			client = *c
		}
		if o != nil {
			options = *o
		}
		client.Clock = r.clock
		options.MeterProvider = metric.NewMeterProvider(metric.WithReader(r.reader))
		options.TracerProvider = trace.NewTracerProvider(trace.WithSpanProcessor(r.spans))
		var err error
		if r.Client, err = otelhold.New(r.driver, &client, &options); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}()
		test(r)
	})
}

// stranger returns another client of the store, which is not measured.
func (r *rig) stranger() *holdfast.Client {
	c, err := holdfast.New(r.store.Client(), &holdfast.ClientOptions{Clock: r.clock})
	if err != nil {
		r.Fatal(err)
	}
	return c
}

func (r *rig) acquire(ctx context.Context, l *holdfast.Lock) *holdfast.Lease {
	r.Helper()
	lease, err := l.Acquire(ctx)
	if err != nil {
		r.Fatal(err)
	}
	return lease
}

func (r *rig) release(l *holdfast.Lease) {
	r.Helper()
	if err := l.Release(); err != nil {
		r.Error(err)
	}
}

// line is one instrument with one set of attributes: name{key=value,…}.
func line(name string, set attribute.Set) string {
	var parts []string
	for _, a := range set.ToSlice() {
		parts = append(parts, string(a.Key)+"="+a.Value.String())
	}
	return name + "{" + strings.Join(parts, ",") + "}"
}

// instrument is what the SDK says of one.
type instrument struct {
	kind, unit string
	keys       map[string]bool
	sum        float64 // of a histogram
}

// collect returns how often each histogram and how much each counter has counted, by line, and the
// instruments.
func collect(t testing.TB, reader *metric.ManualReader) (map[string]int64, map[string]*instrument) {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	values, instruments := map[string]int64{}, map[string]*instrument{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			in := &instrument{unit: m.Unit, keys: map[string]bool{}}
			instruments[m.Name] = in
			add := func(set attribute.Set, n int64) {
				values[line(m.Name, set)] = n
				for _, a := range set.ToSlice() {
					in.keys[string(a.Key)] = true
				}
			}
			switch data := m.Data.(type) {
			case metricdata.Histogram[float64]:
				in.kind = "histogram"
				for _, p := range data.DataPoints {
					add(p.Attributes, int64(p.Count))
					in.sum += p.Sum
				}
			case metricdata.Sum[int64]:
				in.kind = "updowncounter"
				if data.IsMonotonic {
					in.kind = "counter"
				}
				for _, p := range data.DataPoints {
					add(p.Attributes, p.Value)
				}
			default:
				t.Errorf("%s is %T", m.Name, data)
			}
		}
	}
	return values, instruments
}

// expect fails the test unless exactly these lines were measured, beside renewals: whether a hold that was handed over
// is renewed before its release is chance. Those with 0 may be missing.
func (r *rig) expect(want map[string]int64) {
	r.Helper()
	synctest.Wait()
	got, _ := collect(r, r.reader)
	maps.DeleteFunc(got, func(line string, n int64) bool { return n == 0 || strings.HasPrefix(line, "holdfast.renew.") })
	if !maps.Equal(got, want) {
		r.Errorf("measured are %v,\nwant %v", got, want)
	}
}
