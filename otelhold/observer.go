package otelhold

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/wrap"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// observer measures one client. Its instruments are those of the table in doc.go.
type observer struct {
	acquireDuration, holdDuration, renewDuration, releaseDuration                 metric.Float64Histogram
	acquireActive, holdActive, doubtActive                                        metric.Int64UpDownCounter
	holdLost, holdInDoubt, holdRecovered, holdExpiring, renewHolds, eventsDropped metric.Int64Counter

	tracer trace.Tracer
	class  func(string) string
	sets   sets
}

// The bounds of buckets, in seconds: a hand-over inside a client takes microseconds, a job holds its
// lock for hours.
var (
	longBounds = metric.WithExplicitBucketBoundaries(.0001, .0005, .001, .0025, .005, .01, .025, .05,
		.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600)
	requestBounds = metric.WithExplicitBucketBoundaries(.0001, .00025, .0005, .001, .0025, .005, .01,
		.025, .05, .1, .25, .5, 1, 2.5, 5, 10)
)

// makeInstruments fills in o's instruments.
func (o *observer) makeInstruments(m metric.Meter) error {
	var errs []error
	seconds := func(name, text string, bounds metric.HistogramOption) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(text), bounds)
		errs = append(errs, err)
		return h
	}
	count := func(name, unit, text string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(text))
		errs = append(errs, err)
		return c
	}
	active := func(name, unit, text string) metric.Int64UpDownCounter {
		c, err := m.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(text))
		errs = append(errs, err)
		return c
	}
	o.acquireDuration = seconds("holdfast.acquire.duration", "How long an acquire took, until it had a lease or an error.", longBounds)
	o.acquireActive = active("holdfast.acquire.active", "{acquire}", "Acquires that are under way.")
	o.holdDuration = seconds("holdfast.hold.duration", "How long a hold lasted, until it was released or lost.", longBounds)
	o.holdActive = active("holdfast.hold.active", "{hold}", "Holds that are neither released nor lost.")
	o.holdLost = count("holdfast.hold.lost", "{hold}", "Holds that were lost.")
	o.doubtActive = active("holdfast.doubt.active", "{hold}", "Holds that are in doubt now.")
	o.holdInDoubt = count("holdfast.hold.in_doubt", "{hold}", "Holds whose renewal failed, while they are trusted.")
	o.holdRecovered = count("holdfast.hold.recovered", "{hold}", "Holds in doubt that were renewed after all.")
	o.holdExpiring = count("holdfast.hold.expiring", "{hold}", "Holds that are not renewed any more, because their maximum is over.")
	o.renewDuration = seconds("holdfast.renew.duration", "How long a request took that renews holds.", requestBounds)
	o.renewHolds = count("holdfast.renew.holds", "{hold}", "Renewals of holds; with error.type those that failed.")
	o.releaseDuration = seconds("holdfast.release.duration", "How long a request took that releases holds.", requestBounds)
	o.eventsDropped = count("holdfast.events.dropped", "{event}", "Events that came too fast, and are missing in the other instruments.")
	return errors.Join(errs...)
}

// attempt is one acquire and the hold that began with it. It travels in the context of the acquire.
type attempt struct {
	caller context.Context
	labels labels
	span   trace.Span // of the acquire
	hold   trace.Span // nil: none yet. Only for hooks, which one goroutine calls.
	doubt  int64      // 1 while the hold is in doubt. Only for hooks too.
}

type attemptKey struct{}

// attemptOf counts the events that were lost before this one, and returns the attempt that it is about, or nil.
func (o *observer) attemptOf(e *holdfast.Event) *attempt {
	if e.Dropped > 0 {
		o.eventsDropped.Add(context.Background(), int64(e.Dropped), o.sets.of(labels{}))
	}
	if e.Context == nil {
		return nil
	}
	at, _ := e.Context.Value(attemptKey{}).(*attempt)
	return at
}

// begin returns the attributes of an acquire. If they are new, the counters of its holds begin, at 0: Prometheus sees no
// increase in the first value of a series.
func (o *observer) begin(ctx context.Context, l labels) metric.MeasurementOption {
	if set := o.sets.cached(l); set != nil {
		return set
	}
	set := o.sets.of(l)
	o.doubtActive.Add(ctx, 0, set)
	for _, counter := range [...]metric.Int64Counter{o.holdInDoubt, o.holdRecovered, o.holdExpiring} {
		counter.Add(ctx, 0, set)
	}
	for _, l.err = range losses {
		o.holdLost.Add(ctx, 0, o.sets.of(l))
	}
	return set
}

// trace measures an acquire: it is the client's Trace.
func (o *observer) trace(ctx context.Context, a holdfast.Attempt) (context.Context, func(holdfast.Outcome)) {
	began := time.Now()
	at := &attempt{caller: ctx, labels: labels{mode: a.Mode.String()}}
	if o.class != nil {
		at.labels.class = o.class(a.Name)
	}
	active := o.begin(ctx, at.labels)
	o.acquireActive.Add(ctx, 1, active)
	within, span := o.tracer.Start(ctx, "holdfast.acquire", trace.WithTimestamp(began))
	at.span = span
	return context.WithValue(within, attemptKey{}, at), func(r holdfast.Outcome) {
		ended, l := time.Now(), at.labels
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
		span.SetAttributes(append(o.sets.list(&l), keyTry.Bool(a.Try))...)
		if r.Lease == nil && !(a.Try && l.err == "held") { // to find it held is what a try is for
			span.SetStatus(codes.Error, l.err)
		}
		span.End(trace.WithTimestamp(ended))
	}
}

// acquired begins a hold.
func (o *observer) acquired(e holdfast.Event) {
	at := o.attemptOf(&e)
	if at == nil {
		return
	}
	o.holdActive.Add(at.caller, 1, o.sets.of(at.labels))
	_, at.hold = o.tracer.Start(at.caller, "holdfast.hold", trace.WithTimestamp(e.At),
		trace.WithLinks(trace.Link{SpanContext: at.span.SpanContext()}))
	if at.hold.IsRecording() {
		at.hold.SetAttributes(o.sets.list(&at.labels)...)
	}
}

// during returns the hook that counts an event of a hold, and notes it on the hold's span.
func (o *observer) during(what string, counter metric.Int64Counter) func(holdfast.Event) {
	return func(e holdfast.Event) {
		at := o.attemptOf(&e)
		if at == nil {
			return
		}
		counter.Add(at.caller, 1, o.sets.of(at.labels))
		switch what {
		case "in_doubt":
			o.setDoubt(at, 1)
		case "recovered":
			o.setDoubt(at, 0)
		}
		if at.hold != nil && at.hold.IsRecording() {
			at.hold.AddEvent(what, trace.WithTimestamp(e.At))
		}
	}
}

// setDoubt counts a hold as in doubt, by 1, or as in doubt no more, by 0.
func (o *observer) setDoubt(at *attempt, doubt int64) {
	if doubt != at.doubt {
		o.doubtActive.Add(at.caller, doubt-at.doubt, o.sets.of(at.labels))
		at.doubt = doubt
	}
}

func (o *observer) released(e holdfast.Event) { o.over(o.attemptOf(&e), &e, "released", kindOf(e.Err)) }

// losses are the values of error.type of a loss.
var losses = []string{"expired", "not_held", "broken", "max_hold"}

func (o *observer) lost(e holdfast.Event) {
	at, kind := o.attemptOf(&e), kindOf(e.Err)
	if !slices.Contains(losses, kind) { // whatever else prevented the renewal in time, the hold's time was over
		kind = "expired"
	}
	if at != nil {
		l := at.labels
		l.err = kind
		o.holdLost.Add(at.caller, 1, o.sets.of(l))
	}
	o.over(at, &e, "lost", kind)
}

// over ends a hold.
func (o *observer) over(at *attempt, e *holdfast.Event, end, err string) {
	if at == nil {
		return
	}
	o.setDoubt(at, 0)
	l := at.labels
	l.end, l.err = end, err
	o.holdDuration.Record(at.caller, e.After.Seconds(), o.sets.of(l))
	if at.hold == nil {
		return // its beginning was dropped
	}
	o.holdActive.Add(at.caller, -1, o.sets.of(at.labels))
	if at.hold.IsRecording() {
		at.hold.SetAttributes(keyEnd.String(end))
		if err != "" {
			at.hold.SetAttributes(keyError.String(err))
			at.hold.SetStatus(codes.Error, err)
		}
		at.hold.End(trace.WithTimestamp(e.At))
	}
	at.hold = nil
}

// observed is a driver whose renewals and releases are measured.
type observed struct {
	wrap.Forward
	o *observer
}

// Renew implements driver.Driver.
func (d observed) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	began := time.Now()
	renewals := d.Driver.Renew(ctx, grants)
	errs := make([]error, len(renewals))
	took := time.Since(began)
	for i := range renewals {
		errs[i] = renewals[i].Err
		d.o.renewHolds.Add(ctx, 1, d.o.sets.of(labels{err: kindOf(errs[i])}))
	}
	d.o.request(ctx, d.o.renewDuration, took, errs)
	return renewals
}

// Release implements driver.Driver.
func (d observed) Release(ctx context.Context, grants []driver.Grant) []error {
	began := time.Now()
	errs := d.Driver.Release(ctx, grants)
	d.o.request(ctx, d.o.releaseDuration, time.Since(began), errs)
	return errs
}

// request records how long a request took, by its first error.
func (o *observer) request(ctx context.Context, duration metric.Float64Histogram, took time.Duration, errs []error) {
	kind := ""
	for _, err := range errs {
		if kind == "" {
			kind = kindOf(err)
		}
	}
	duration.Record(ctx, took.Seconds(), o.sets.of(labels{err: kind}))
}

// The attributes.
const (
	keyMode   = attribute.Key("holdfast.lock.mode")
	keyClass  = attribute.Key("holdfast.lock.class")
	keySource = attribute.Key("holdfast.acquire.source")
	keyTry    = attribute.Key("holdfast.acquire.try")
	keyEnd    = attribute.Key("holdfast.hold.end")
	keyError  = attribute.Key("error.type")
)

// labels are the values of the attributes; "": it does not have that one.
type labels struct{ mode, class, source, end, err string }

func (l *labels) attributes() (list []attribute.KeyValue) {
	for _, a := range [...]struct {
		key   attribute.Key
		value string
	}{{keyMode, l.mode}, {keyClass, l.class}, {keySource, l.source}, {keyEnd, l.end}, {keyError, l.err}} {
		if a.value != "" {
			list = append(list, a.key.String(a.value))
		}
	}
	return list
}

// sets keeps the sets of attributes that were used, because making one costs more than a measurement.
type sets struct {
	always []attribute.KeyValue
	mu     sync.RWMutex
	known  map[labels]metric.MeasurementOption
}

// maxSets bounds what is kept, for a Class with very many values.
const maxSets = 1024

// list returns the attributes as those of a span.
func (s *sets) list(l *labels) []attribute.KeyValue { return append(l.attributes(), s.always...) }

// cached returns the set of these attributes, or nil if it is not kept.
func (s *sets) cached(l labels) metric.MeasurementOption {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.known[l]
}

func (s *sets) of(l labels) metric.MeasurementOption {
	if set := s.cached(l); set != nil {
		return set
	}
	set := metric.WithAttributeSet(attribute.NewSet(s.list(&l)...))
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) < maxSets {
		s.known[l] = set
	}
	return set
}

// kinds are the errors that error.type tells apart, the most telling first: an Acquire whose context
// has ended while another held the lock is a timeout.
var kinds = []struct {
	err  error
	kind string
}{
	{holdfast.ErrClosed, "closed"},
	{holdfast.ErrDeadlock, "deadlock"},
	{context.DeadlineExceeded, "timeout"},
	{context.Canceled, "canceled"},
	{holdfast.ErrHeld, "held"},
	{holdfast.ErrMismatch, "mismatch"},
	{holdfast.ErrUnsupported, "unsupported"},
	{holdfast.ErrBroken, "broken"},
	{holdfast.ErrNotHeld, "not_held"},
	{holdfast.ErrMaxHold, "max_hold"},
	{holdfast.ErrUncertain, "uncertain"},
}

// kindOf returns the error.type of an error, "" of nil.
func kindOf(err error) string {
	if err == nil {
		return ""
	}
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return k.kind
		}
	}
	return "_OTHER"
}
