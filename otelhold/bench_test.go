package otelhold_test

import (
	"testing"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/memlock"
	"github.com/holdfastlock/holdfast/otelhold"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
)

// BenchmarkOverhead measures an uncontended acquire and release in memory: without this package, with it
// but without an SDK, with metrics, and with metrics and a span of every acquire and hold.
func BenchmarkOverhead(b *testing.B) {
	for _, c := range []struct {
		name    string
		options *otelhold.Options // nil: without this package
	}{
		{"without", nil},
		{"no-sdk", &otelhold.Options{MeterProvider: noop.NewMeterProvider(), TracerProvider: tracenoop.NewTracerProvider()}},
		{"metrics", &otelhold.Options{
			MeterProvider: metric.NewMeterProvider(metric.WithReader(metric.NewManualReader())), TracerProvider: tracenoop.NewTracerProvider(),
		}},
		{"metrics+spans", &otelhold.Options{
			MeterProvider:  metric.NewMeterProvider(metric.WithReader(metric.NewManualReader())),
			TracerProvider: trace.NewTracerProvider(),
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			d := memlock.NewStore(nil).Client()
			client, err := holdfast.New(d, nil)
			if c.options != nil {
				client, err = otelhold.New(d, nil, c.options)
			}
			if err != nil {
				b.Fatal(err)
			}
			defer client.Close()
			lock, ctx := client.Mutex("x", nil), b.Context()
			b.ReportAllocs()
			for b.Loop() {
				lease, err := lock.Acquire(ctx)
				if err != nil {
					b.Fatal(err)
				}
				if err := lease.Release(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
