package otelhold_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
)

// inRequest runs f under a span of the caller's own, and returns the spans that ended, by name.
func (r *rig) inRequest(f func(context.Context)) (request trace.ReadOnlySpan, ended map[string]trace.ReadOnlySpan) {
	r.Helper()
	ctx, span := trace.NewTracerProvider(trace.WithSpanProcessor(r.spans)).Tracer("test").Start(r.Context(), "request")
	f(ctx)
	span.End()
	synctest.Wait()
	ended = map[string]trace.ReadOnlySpan{}
	for _, s := range r.spans.Ended() {
		ended[s.Name()] = s
	}
	return ended["request"], ended
}

func attributesOf(s trace.ReadOnlySpan) string { return line("", attribute.NewSet(s.Attributes()...)) }

// TestSpans: acquire and hold are children of the caller's span; the hold is linked to its acquire. Spans and
// histograms say how long both were.
func TestSpans(t *testing.T) {
	inRig(t, nil, nil, func(r *rig) {
		other := r.stranger()
		defer other.Close()
		theirs := r.acquire(r.Context(), other.Mutex("x", nil))
		time.AfterFunc(3*time.Second, func() { r.release(theirs) })
		start := time.Now()
		request, ended := r.inRequest(func(ctx context.Context) {
			lease := r.acquire(ctx, r.Mutex("x", nil))
			time.Sleep(7 * time.Second)
			r.release(lease)
		})
		acquire, hold := ended["holdfast.acquire"], ended["holdfast.hold"]
		if acquire == nil || hold == nil || len(ended) != 3 {
			t.Fatalf("the spans are %v", ended)
		}
		for _, s := range []trace.ReadOnlySpan{acquire, hold} {
			if s.Parent().SpanID() != request.SpanContext().SpanID() {
				r.Errorf("%s is no child of the request", s.Name())
			}
			if s.Status().Code != codes.Unset {
				r.Errorf("%s has the status %v", s.Name(), s.Status())
			}
		}
		if links := hold.Links(); len(links) != 1 || links[0].SpanContext.SpanID() != acquire.SpanContext().SpanID() {
			r.Errorf("the links of the hold are %v", links)
		}
		took := func(s trace.ReadOnlySpan) time.Duration { return s.EndTime().Sub(s.StartTime()) }
		if took(acquire) != 3*time.Second || took(hold) != 7*time.Second || hold.StartTime().Sub(start) != 3*time.Second {
			r.Errorf("the acquire took %v, the hold %v from %v on", took(acquire), took(hold), hold.StartTime().Sub(start))
		}
		_, measured := collect(r, r.reader)
		for name, want := range map[string]float64{"holdfast.acquire.duration": 3, "holdfast.hold.duration": 7} {
			if sum := measured[name].sum; sum != want {
				r.Errorf("%s is %v s, want %v", name, sum, want)
			}
		}
		if a, want := attributesOf(acquire), "{holdfast.acquire.source=store,holdfast.acquire.try=false,"+exclusive; a != want {
			r.Errorf("the acquire has %s, want %s", a, want)
		}
		if a, want := attributesOf(hold), "{holdfast.hold.end=released,"+exclusive; a != want {
			r.Errorf("the hold has %s, want %s", a, want)
		}
	})
}

// TestSpansOfTrouble: doubt is an event of the hold's span, a loss and a failed acquire are errors, and a
// hold may outlive the caller's span.
func TestSpansOfTrouble(t *testing.T) {
	inRig(t, nil, nil, func(r *rig) {
		var lease *holdfast.Lease
		request, _ := r.inRequest(func(ctx context.Context) {
			lease = r.acquire(ctx, r.Mutex("x", &holdfast.Options{TTL: 9 * time.Second, RenewEvery: 3 * time.Second}))
			if _, err := r.Mutex("x", nil).TryAcquire(ctx); !errors.Is(err, holdfast.ErrHeld) {
				r.Error(err)
			}
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			if _, err := r.Mutex("x", nil).Acquire(short); err == nil {
				r.Error("the name is held")
			}
		})
		r.driver.silent.Store(true)
		<-lease.Done()
		synctest.Wait()
		statuses := map[string]int{}
		for _, s := range r.spans.Ended() {
			statuses[s.Name()+": "+s.Status().Code.String()+" "+s.Status().Description]++
			if s.Name() != "holdfast.hold" {
				continue
			}
			if s.SpanContext().TraceID() != request.SpanContext().TraceID() || !s.EndTime().After(request.EndTime()) {
				r.Error("the hold does not outlive the request in its trace")
			}
			var events []string
			for _, e := range s.Events() {
				events = append(events, e.Name)
			}
			if len(events) == 0 || events[0] != "in_doubt" {
				r.Errorf("the hold has the events %q", events)
			}
		}
		for _, want := range []string{
			"request: Unset ", "holdfast.acquire: Unset ", "holdfast.acquire: Error timeout", "holdfast.hold: Error expired",
		} {
			if want == "holdfast.acquire: Unset " && statuses[want] != 2 || statuses[want] == 0 {
				r.Errorf("there is no span %q among %v", want, statuses)
			}
		}
	})
}
