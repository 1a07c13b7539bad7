package otelhold

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/holdfastlock/holdfast"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

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

func newSets(always []attribute.KeyValue) *sets {
	return &sets{always: slices.Clone(always), known: map[labels]metric.MeasurementOption{}}
}

func (s *sets) of(l labels) metric.MeasurementOption {
	s.mu.RLock()
	set := s.known[l]
	s.mu.RUnlock()
	if set != nil {
		return set
	}
	set = metric.WithAttributeSet(attribute.NewSet(append(l.attributes(), s.always...)...))
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

// lossOf returns the error.type of a loss. Whatever else prevented the renewal in time, the hold's
// time was over.
func lossOf(err error) string {
	switch kind := kindOf(err); kind {
	case "broken", "not_held", "max_hold":
		return kind
	}
	return "expired"
}
