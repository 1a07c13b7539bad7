package otelhold_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/otelhold"
	"go.opentelemetry.io/otel/sdk/metric"
)

type key struct{}

// TestUsersHooks: the user's own hooks and Trace go on, and see the events' contexts.
func TestUsersHooks(t *testing.T) {
	var mu sync.Mutex
	var told []string
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, what)
	}
	c := &holdfast.ClientOptions{
		Trace: func(ctx context.Context, _ holdfast.Attempt) (context.Context, func(holdfast.Outcome)) {
			note("begin")
			return context.WithValue(ctx, key{}, "mine"), func(holdfast.Outcome) { note("end") }
		},
		Events: holdfast.Events{
			Acquired: func(e holdfast.Event) { note("acquired " + e.Context.Value(key{}).(string)) },
			Released: func(e holdfast.Event) { note("released " + e.Context.Value(key{}).(string)) },
		},
	}
	inRig(t, c, nil, func(r *rig) {
		r.release(r.acquire(r.Context(), r.Mutex("x", nil)))
		r.expect(map[string]int64{got + "free," + exclusive: 1, released + exclusive: 1, "holdfast.release.duration{}": 1})
	})
	slices.Sort(told)
	if want := "acquired mine, begin, end, released mine"; strings.Join(told, ", ") != want {
		t.Errorf("the user was told %q, want %s", told, want)
	}
}

// TestOpen: Open takes the URL's parameters as holdfast.Open does, measures, and refuses what is wrong.
func TestOpen(t *testing.T) {
	reader := metric.NewManualReader()
	o := &otelhold.Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))}
	c, err := otelhold.Open(t.Context(), "mem://otelhold-open?hf.prefix=shop/", o)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := c.Mutex("x", nil).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s, err := driver.ParseSequencer(lease.Sequencer()); err != nil || s.Name != "shop/x" {
		t.Errorf("the store's name is %q (%v)", s.Name, err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	values, _ := collect(t, reader)
	if values[got+"free,"+exclusive] != 1 || values[released+exclusive] != 1 {
		t.Errorf("measured are %v", values)
	}
	for url, want := range map[string]string{
		"mem://x?hf.nonsense=1": "hf.nonsense", "nowhere://x": "nowhere", "mem://x?hf.ttl=-1s": "hf.ttl", ":": "URL",
	} {
		if _, err := otelhold.Open(t.Context(), url, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%q): %v, want an error with %q", url, err, want)
		}
	}
	if _, err := otelhold.New(nil, nil, nil); err == nil {
		t.Error("New takes no driver")
	}
}
