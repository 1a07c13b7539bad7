package otelhold

import (
	"context"
	"time"

	"github.com/holdfastlock/holdfast"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// observer measures one client.
type observer struct {
	*instruments
	tracer trace.Tracer
	class  func(string) string
	sets   *sets
}

// scope names this package to meters and tracers.
const scope = "github.com/holdfastlock/holdfast/otelhold"

// attempt is one acquire and the hold that began with it. It travels in the context of the acquire.
type attempt struct {
	caller context.Context
	labels labels
	span   trace.Span // of the acquire
	hold   trace.Span // nil: none yet. Only for hooks, which one goroutine calls.
}

type attemptKey struct{}

// attemptOf returns the attempt that an event is about.
func attemptOf(e *holdfast.Event) *attempt {
	if e.Context == nil {
		return nil
	}
	a, _ := e.Context.Value(attemptKey{}).(*attempt)
	return a
}

// trace measures an acquire: it is the client's Trace.
func (o *observer) trace(ctx context.Context, a holdfast.Attempt) (context.Context, func(holdfast.Outcome)) {
	began := time.Now()
	at := &attempt{caller: ctx, labels: labels{mode: a.Mode.String()}}
	if o.class != nil {
		at.labels.class = o.class(a.Name)
	}
	active := o.sets.of(at.labels)
	o.acquireActive.Add(ctx, 1, active)
	within, span := o.tracer.Start(ctx, "holdfast.acquire", trace.WithTimestamp(began))
	at.span = span
	return context.WithValue(within, attemptKey{}, at), func(r holdfast.Outcome) {
		ended := time.Now()
		l := at.labels
		if r.Lease != nil {
			l.source = r.Source.String()
		} else {
			l.err = kindOf(r.Err)
		}
		o.acquireActive.Add(ctx, -1, active)
		o.acquireDuration.Record(within, ended.Sub(began).Seconds(), o.sets.of(l))
		if !span.IsRecording() {
			return
		}
		span.SetAttributes(o.spanAttributes(&l)...)
		span.SetAttributes(keyTry.Bool(a.Try))
		if r.Lease == nil && !(a.Try && l.err == "held") { // to find it held is what a try is for
			span.SetStatus(codes.Error, l.err)
		}
		span.End(trace.WithTimestamp(ended))
	}
}

func (o *observer) spanAttributes(l *labels) []attribute.KeyValue {
	return append(l.attributes(), o.sets.always...)
}

// dropped counts the events that were lost before this one.
func (o *observer) dropped(e holdfast.Event) {
	if e.Dropped > 0 {
		o.eventsDropped.Add(context.Background(), int64(e.Dropped), o.sets.of(labels{}))
	}
}

// acquired begins a hold.
func (o *observer) acquired(e holdfast.Event) {
	o.dropped(e)
	at := attemptOf(&e)
	if at == nil {
		return
	}
	o.holdActive.Add(at.caller, 1, o.sets.of(at.labels))
	_, at.hold = o.tracer.Start(at.caller, "holdfast.hold", trace.WithTimestamp(e.At),
		trace.WithLinks(trace.Link{SpanContext: at.span.SpanContext()}))
	if at.hold.IsRecording() {
		at.hold.SetAttributes(o.spanAttributes(&at.labels)...)
	}
}

func (o *observer) released(e holdfast.Event) { o.over(e, "released", kindOf(e.Err)) }

func (o *observer) lost(e holdfast.Event) {
	kind := lossOf(e.Err)
	if at := attemptOf(&e); at != nil {
		l := at.labels
		l.err = kind
		o.holdLost.Add(at.caller, 1, o.sets.of(l))
	}
	o.over(e, "lost", kind)
}

// over ends a hold.
func (o *observer) over(e holdfast.Event, end, err string) {
	o.dropped(e)
	at := attemptOf(&e)
	if at == nil {
		return
	}
	l := at.labels
	l.end, l.err = end, err
	o.holdDuration.Record(at.caller, e.After.Seconds(), o.sets.of(l))
	if at.hold == nil {
		return // its beginning was dropped
	}
	o.holdActive.Add(at.caller, -1, o.sets.of(at.labels))
	if at.hold.IsRecording() {
		at.hold.SetAttributes(l.attributes()...)
		if err != "" {
			at.hold.SetStatus(codes.Error, err)
		}
		at.hold.End(trace.WithTimestamp(e.At))
	}
	at.hold = nil
}

func (o *observer) inDoubt(e holdfast.Event) {
	if at := o.during(e, "in_doubt"); at != nil {
		o.holdInDoubt.Add(at.caller, 1, o.sets.of(at.labels))
	}
}

func (o *observer) recovered(e holdfast.Event) {
	if at := o.during(e, "recovered"); at != nil {
		o.holdRecovered.Add(at.caller, 1, o.sets.of(at.labels))
	}
}

func (o *observer) expiring(e holdfast.Event) {
	if at := o.during(e, "expiring"); at != nil {
		o.holdExpiring.Add(at.caller, 1, o.sets.of(at.labels))
	}
}

// during notes an event of a hold on its span.
func (o *observer) during(e holdfast.Event, what string) *attempt {
	o.dropped(e)
	at := attemptOf(&e)
	if at != nil && at.hold != nil && at.hold.IsRecording() {
		at.hold.AddEvent(what, trace.WithTimestamp(e.At))
	}
	return at
}

func newObserver(options *Options) (*observer, error) {
	o := Options{}
	if options != nil {
		o = *options
	}
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	in, err := newInstruments(o.MeterProvider.Meter(scope))
	if err != nil {
		return nil, err
	}
	return &observer{
		instruments: in, tracer: o.TracerProvider.Tracer(scope), class: o.Class,
		sets: newSets(o.Attributes),
	}, nil
}
