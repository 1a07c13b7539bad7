//go:build soak && linux

// Package oteltest tests module otelhold over a real store.
package oteltest

import (
	"context"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/otelhold"
	_ "github.com/holdfastlock/holdfast/redislock"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// count returns how often an instrument has counted with an attribute of this value; "": with any.
func count(t *testing.T, reader *metric.ManualReader, name string, key attribute.Key, value string) (n int64) {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	has := func(set attribute.Set) bool {
		v, _ := set.Value(key)
		return value == "" || v.String() == value
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != name {
				continue
			}
			switch data := m.Data.(type) {
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					if has(p.Attributes) {
						n += int64(p.Count)
					}
				}
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					if has(p.Attributes) {
						n += p.Value
					}
				}
			}
		}
	}
	return n
}

// TestRedisKilled: a hold is handed over by the store, renewed, in doubt when the server is killed, and
// lost; all of that is measured.
func TestRedisKilled(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	url := "redis://" + server.Addr + "?hf.ttl=2s"
	reader, spans := metric.NewManualReader(), tracetest.NewSpanRecorder()
	lost := make(chan struct{})
	other, err := holdfast.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	theirs, err := other.Mutex("x", nil).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	locks, err := otelhold.Open(t.Context(), url, &otelhold.Options{
		MeterProvider:  metric.NewMeterProvider(metric.WithReader(reader)),
		TracerProvider: trace.NewTracerProvider(trace.WithSpanProcessor(spans)),
	})
	if err != nil {
		t.Fatal(err)
	}
	released := time.AfterFunc(50*time.Millisecond, func() { _ = theirs.Release() })
	defer released.Stop()
	lease, err := locks.Mutex("x", nil).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	go func() { <-lease.Done(); close(lost) }()
	deadline := time.After(time.Minute)
	for count(t, reader, "holdfast.renew.holds", "error.type", "") == 0 {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			t.Fatal("no renewal is measured")
		}
	}
	server.Kill()
	select {
	case <-lost:
	case <-deadline:
		t.Fatal("P2: the lease is not lost")
	}
	_ = locks.Close() // waits for the events
	for _, c := range []struct {
		name  string
		key   attribute.Key
		value string
	}{
		{"holdfast.acquire.duration", "holdfast.acquire.source", "store"},
		{"holdfast.hold.in_doubt", "holdfast.lock.mode", "exclusive"},
		{"holdfast.hold.lost", "error.type", "expired"},
		{"holdfast.hold.duration", "holdfast.hold.end", "lost"},
	} {
		if n := count(t, reader, c.name, c.key, c.value); n != 1 {
			t.Errorf("%s with %s=%s is %d, want 1", c.name, c.key, c.value, n)
		}
	}
	if n := count(t, reader, "holdfast.hold.active", "", ""); n != 0 {
		t.Errorf("%d holds are active", n)
	}
	for _, s := range spans.Ended() {
		if s.Name() == "holdfast.hold" {
			if s.Status().Code != codes.Error || len(s.Events()) == 0 || s.Events()[0].Name != "in_doubt" {
				t.Errorf("the hold's span has the status %v and the events %v", s.Status(), s.Events())
			}
			return
		}
	}
	t.Error("there is no span of the hold")
}
