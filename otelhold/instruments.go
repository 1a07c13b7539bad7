package otelhold

import (
	"errors"

	"go.opentelemetry.io/otel/metric"
)

// instruments are those of the table in doc.go.
type instruments struct {
	acquireDuration metric.Float64Histogram
	acquireActive   metric.Int64UpDownCounter
	holdDuration    metric.Float64Histogram
	holdActive      metric.Int64UpDownCounter
	holdLost        metric.Int64Counter
	holdInDoubt     metric.Int64Counter
	holdRecovered   metric.Int64Counter
	holdExpiring    metric.Int64Counter
	renewDuration   metric.Float64Histogram
	renewHolds      metric.Int64Counter
	releaseDuration metric.Float64Histogram
	eventsDropped   metric.Int64Counter
}

// The bounds of buckets, in seconds: a hand-over inside a client takes microseconds, a job holds its
// lock for hours.
var (
	longBounds = metric.WithExplicitBucketBoundaries(.0001, .0005, .001, .0025, .005, .01, .025, .05,
		.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600)
	requestBounds = metric.WithExplicitBucketBoundaries(.0001, .00025, .0005, .001, .0025, .005, .01,
		.025, .05, .1, .25, .5, 1, 2.5, 5, 10)
)

func newInstruments(m metric.Meter) (*instruments, error) {
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
	in := &instruments{
		acquireDuration: seconds("holdfast.acquire.duration", "How long an acquire took, until it had a lease or an error.", longBounds),
		acquireActive:   active("holdfast.acquire.active", "{acquire}", "Acquires that are under way."),
		holdDuration:    seconds("holdfast.hold.duration", "How long a hold lasted, until it was released or lost.", longBounds),
		holdActive:      active("holdfast.hold.active", "{hold}", "Holds that are neither released nor lost."),
		holdLost:        count("holdfast.hold.lost", "{hold}", "Holds that were lost."),
		holdInDoubt:     count("holdfast.hold.in_doubt", "{hold}", "Holds whose renewal failed, while they are trusted."),
		holdRecovered:   count("holdfast.hold.recovered", "{hold}", "Holds in doubt that were renewed after all."),
		holdExpiring:    count("holdfast.hold.expiring", "{hold}", "Holds that are not renewed any more, because their maximum is over."),
		renewDuration:   seconds("holdfast.renew.duration", "How long a request took that renews holds.", requestBounds),
		renewHolds:      count("holdfast.renew.holds", "{hold}", "Renewals of holds; with error.type those that failed."),
		releaseDuration: seconds("holdfast.release.duration", "How long a request took that releases holds.", requestBounds),
		eventsDropped:   count("holdfast.events.dropped", "{event}", "Events that came too fast, and are missing in the other instruments."),
	}
	return in, errors.Join(errs...)
}
