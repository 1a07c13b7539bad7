package otelhold

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/storeurl"
	"github.com/holdfastlock/holdfast/internal/wrap"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// scope names this package to meters and tracers.
const scope = "github.com/holdfastlock/holdfast/otelhold"

// Options say what is measured and where it goes. The zero value of each field is its default.
type Options struct {
	// MeterProvider makes the instruments. Nil: the global one, otel.GetMeterProvider.
	MeterProvider metric.MeterProvider
	// TracerProvider makes the spans. Nil: the global one, otel.GetTracerProvider. To have no spans
	// set that of go.opentelemetry.io/otel/trace/noop.
	TracerProvider trace.TracerProvider
	// Class returns the class of a lock's name (without the client's prefix), for the attribute
	// holdfast.lock.class: "orders" for "orders/42". It must have few values: each makes time series
	// of its own, for ever. It is called with each acquire, by several goroutines at the same time.
	// Nil: no such attribute.
	Class func(name string) string
	// Attributes are put on every measurement and span, to tell several clients of a program apart.
	Attributes []attribute.KeyValue
}

// Open is holdfast.Open with metrics and spans. Nil options mean the defaults.
func Open(ctx context.Context, rawURL string, o *Options) (*holdfast.Client, error) {
	if ctx == nil {
		return nil, errors.New("otelhold: open: the context is nil")
	}
	u, err := driver.ParseURL(rawURL)
	if err != nil {
		return nil, fmt.Errorf("otelhold: open: %w", err)
	}
	params, rest, err := storeurl.Take(u)
	if err != nil {
		return nil, fmt.Errorf("otelhold: open: %w", err)
	}
	d, err := driver.Open(ctx, rest)
	if err != nil {
		return nil, fmt.Errorf("otelhold: open %s: %w", driver.Redact(u), err)
	}
	c, err := New(d, &holdfast.ClientOptions{Prefix: params.Prefix, TTL: params.TTL}, o)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return c, nil
}

// New is holdfast.New with metrics and spans. Nil options mean the defaults. The Events and Trace of
// the client's options are called too, after those of this package.
func New(d driver.Driver, c *holdfast.ClientOptions, o *Options) (*holdfast.Client, error) {
	if d == nil {
		return nil, errors.New("otelhold: new: the driver is nil")
	}
	client, options := holdfast.ClientOptions{}, Options{}
	if c != nil {
		client = *c
	}
	if o != nil {
		options = *o
	}
	if options.MeterProvider == nil {
		options.MeterProvider = otel.GetMeterProvider()
	}
	if options.TracerProvider == nil {
		options.TracerProvider = otel.GetTracerProvider()
	}
	ob := &observer{
		tracer: options.TracerProvider.Tracer(scope), class: options.Class,
		sets: sets{always: slices.Clone(options.Attributes), known: map[labels]metric.MeasurementOption{}},
	}
	if err := ob.makeInstruments(options.MeterProvider.Meter(scope)); err != nil {
		return nil, fmt.Errorf("otelhold: new: %w", err)
	}
	ob.eventsDropped.Add(context.Background(), 0, ob.sets.of(labels{})) // see begin
	client.Trace = inside(ob.trace, client.Trace)
	e := &client.Events
	e.Acquired = before(ob.acquired, e.Acquired)
	e.InDoubt = before(ob.during("in_doubt", ob.holdInDoubt), e.InDoubt)
	e.Recovered = before(ob.during("recovered", ob.holdRecovered), e.Recovered)
	e.Expiring = before(ob.during("expiring", ob.holdExpiring), e.Expiring)
	e.Lost = before(ob.lost, e.Lost)
	e.Released = before(ob.released, e.Released)
	if theirs := e.Waiting; theirs != nil { // the count of dropped events may come with any
		e.Waiting = before(func(e holdfast.Event) { ob.attemptOf(&e) }, theirs)
	}
	return holdfast.New(observed{wrap.Forward{Driver: d}, ob}, &client)
}

// before returns the hook that calls ours and then the user's.
func before(ours, theirs func(holdfast.Event)) func(holdfast.Event) {
	if theirs == nil {
		return ours
	}
	return func(e holdfast.Event) {
		ours(e)
		theirs(e)
	}
}

type traceFunc = func(context.Context, holdfast.Attempt) (context.Context, func(holdfast.Outcome))

// inside returns the Trace with the user's within ours.
func inside(ours, theirs traceFunc) traceFunc {
	if theirs == nil {
		return ours
	}
	return func(ctx context.Context, a holdfast.Attempt) (context.Context, func(holdfast.Outcome)) {
		ctx, after := ours(ctx, a)
		within, theirAfter := theirs(ctx, a)
		if within != nil {
			ctx = within
		}
		return ctx, func(o holdfast.Outcome) {
			after(o)
			if theirAfter != nil {
				theirAfter(o)
			}
		}
	}
}
