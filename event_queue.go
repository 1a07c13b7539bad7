package holdfast

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// eventQueue is what hooks and the logger have not been told yet. They are the caller's
// code, which may block or panic: a goroutine of the queue's calls them, so that it is
// the only one that suffers. It exists only while there is something to tell (P9).
type eventQueue struct {
	logger *slog.Logger // nil: none

	mu      sync.Mutex
	waiting []queuedEvent
	dropped int           // how many did not fit since the last one that did
	running bool          // the goroutine exists
	idle    chan struct{} // closed when all has been told; nil: nobody waits for that
}

// queuedEvent is an event, with what it is told to and how.
type queuedEvent struct {
	hook  func(Event) // nil: none
	level slog.Level
	msg   string
	event Event

	panicked []slog.Attr // not nil: there is no event, but a panic of the driver to be logged
}

const (
	// maxQueued bounds the queue. A client may lose, or release, ten thousand leases at
	// once, and that much fits.
	maxQueued = 1 << 14
	// hooksWithin bounds how long Close waits for the hooks.
	hooksWithin = time.Second
)

// put queues an event, or counts it if there is no room. It never waits for a hook.
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

// run tells one event after the other until there is none.
func (q *eventQueue) run() {
	done := false
	defer func() {
		if !done {
			go q.run() // a hook has ended the goroutine, as testing's FailNow does
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

// next takes out the oldest event. It returns false, and the goroutine has ended, when
// there is none.
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
	q.waiting[0] = queuedEvent{} // the array must not keep what it refers to
	q.waiting = q.waiting[1:]
	return e, true
}

// drained returns a channel that is closed when all that is queued has been told.
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
		q.guard(e, "log handler", nil, func() { log.LogAttrs(context.Background(), e.level, "holdfast: "+e.msg, e.attrs()...) })
	}
}

// guard runs f and writes a panic in it to the log, or, where that is nil, to
// slog.Default.
func (q *eventQueue) guard(e queuedEvent, what string, log *slog.Logger, f func()) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		defer func() { _ = recover() }() // the log panics too: there is nobody else to tell
		if log == nil {
			log = slog.Default()
		}
		log.Error("holdfast: a "+what+" panicked", "event", e.msg, "lock", e.event.Name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	}()
	f()
}

// attrs are those of the event's log record.
func (e *queuedEvent) attrs() []slog.Attr {
	if e.panicked != nil {
		return e.panicked
	}
	attrs := []slog.Attr{slog.String("lock", e.event.Name), slog.String("mode", e.event.Mode.String())}
	if e.event.Token != 0 {
		attrs = append(attrs, slog.Int64("token", int64(e.event.Token)))
	}
	if e.event.After != 0 {
		attrs = append(attrs, slog.Duration("after", e.event.After))
	}
	if !e.event.Until.IsZero() {
		attrs = append(attrs, slog.Time("until", e.event.Until))
	}
	if e.event.Err != nil {
		attrs = append(attrs, slog.Any("error", e.event.Err))
	}
	if e.event.Dropped != 0 {
		attrs = append(attrs, slog.Int("dropped", e.event.Dropped))
	}
	return attrs
}
