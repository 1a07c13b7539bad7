package holdfast

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// eventQueue is the events that hooks and the logger have not been told yet. Hooks and loggers are
// the user's code, which may block or panic. The queue's own goroutine calls them, so nothing else
// suffers. It exists only while there are events (P9).
type eventQueue struct {
	logger *slog.Logger // nil: none

	mu      sync.Mutex
	waiting []queuedEvent
	dropped int           // how many have been dropped since the last one that fitted
	running bool          // the goroutine exists
	idle    chan struct{} // closed when all have been delivered; nil: nobody waits for that
}

// queuedEvent is an event with its hook, its level and its message in the log.
type queuedEvent struct {
	hook  func(Event) // nil: none
	level slog.Level
	msg   string
	event Event

	panicked []slog.Attr // not nil: a panic of the driver to be logged, instead of an event
}

const (
	// maxQueued bounds the queue. The events of a client that loses or releases ten thousand
	// leases at once fit.
	maxQueued = 1 << 14
	// hooksWithin bounds how long Close waits for the hooks.
	hooksWithin = time.Second
)

// put queues an event, or counts it as dropped if there is no room. It never waits for a hook.
func (q *eventQueue) put(e queuedEvent) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) >= maxQueued {
		q.dropped++
		return
	}
	if e.panicked == nil {
		e.event.Dropped, q.dropped = q.dropped, 0
	}
	q.waiting = append(q.waiting, e)
	if !q.running {
		q.running = true
		go q.run()
	}
}

// run delivers one event after the other until there is none.
func (q *eventQueue) run() {
	done := false
	defer func() {
		if !done {
			go q.run() // a hook has ended this goroutine, as testing's FailNow does
		}
	}()
	for {
		e, ok := q.next()
		if !ok {
			done = true
			return
		}
		q.tell(e)
	}
}

// next removes the oldest event and returns it. If there is none, it returns false, and the
// goroutine counts as ended.
func (q *eventQueue) next() (queuedEvent, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.running, q.waiting = false, nil
		if q.idle != nil {
			close(q.idle)
			q.idle = nil
		}
		return queuedEvent{}, false
	}
	e := q.waiting[0]
	q.waiting[0] = queuedEvent{} // free what it refers to
	q.waiting = q.waiting[1:]
	return e, true
}

// drained returns a channel that is closed when all events have been delivered.
func (q *eventQueue) drained() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.running {
		return endedChannel
	}
	if q.idle == nil {
		q.idle = make(chan struct{})
	}
	return q.idle
}

// tell calls the hook and writes the log record.
func (q *eventQueue) tell(e queuedEvent) {
	if e.hook != nil {
		q.guard(e, "hook", q.logger, func() { e.hook(e.event) })
	}
	log := q.logger
	if log == nil && e.panicked != nil {
		log = slog.Default()
	}
	if log != nil {
		q.guard(e, "log handler", nil, func() {
			log.LogAttrs(context.Background(), e.level, "holdfast: "+e.msg, e.attrs()...)
		})
	}
}

// guard runs f. It writes a panic of f to the log, or to slog.Default if log is nil.
func (q *eventQueue) guard(e queuedEvent, what string, log *slog.Logger, f func()) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		defer func() { _ = recover() }() // the log panics too
		if log == nil {
			log = slog.Default()
		}
		log.Error("holdfast: a "+what+" panicked", "event", e.msg, "lock", e.event.Name,
			"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	}()
	f()
}

// attrs returns the attributes of the event's log record.
func (e *queuedEvent) attrs() []slog.Attr {
	if e.panicked != nil {
		return e.panicked
	}
	attrs := []slog.Attr{
		slog.String("lock", e.event.Name), slog.String("mode", e.event.Mode.String()),
	}
	if e.event.Token != 0 {
		attrs = append(attrs, slog.Int64("token", int64(e.event.Token)))
	}
	if e.event.After != 0 {
		attrs = append(attrs, slog.Duration("after", e.event.After))
	}
	if !e.event.Until.IsZero() {
		attrs = append(attrs, slog.Time("until", e.event.Until))
	}
	if e.event.Degraded {
		attrs = append(attrs, slog.Bool("degraded", true))
	}
	if e.event.Err != nil {
		attrs = append(attrs, slog.Any("error", e.event.Err))
	}
	if e.event.Dropped != 0 {
		attrs = append(attrs, slog.Int("dropped", e.event.Dropped))
	}
	return attrs
}
