package holdfast

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/internal/core/engine"
)

// Events are a client's hooks: functions that are told what happens to its locks. Each may be nil.
// One goroutine of the client calls them, one after the other, in the order in which things
// happened: Acquired of a hold comes before its Lost or Released.
//
// No lock waits for a hook. A hook that blocks delays only other hooks and the client's Logger:
// renewals, losses and releases go on, and some thousands of their events are queued. Events that
// do not fit are dropped, and counted in the Event.Dropped of the next. So hooks may be late: to
// stop work in time use Lease.Done or Lease.WithContext. If a hook panics, the panic is logged, by
// slog.Default if the client has no Logger.
//
// Hooks may use the client. Close waits for hooks for at most 1 s, so a hook that calls it delays
// itself by that; "go client.Close()" does not.
type Events struct {
	// Acquired: a hold begins; several leases may share it. It ends with Lost or Released.
	Acquired func(Event)
	// Waiting: the store has told an Acquire to wait; Event.Err is the *HeldError.
	Waiting func(Event)
	// InDoubt: a renewal has failed. The lease is trusted until Event.Until: work that needs time
	// to stop has until then.
	InDoubt func(Event)
	// Recovered: a lease in doubt has been renewed after all.
	Recovered func(Event)
	// Expiring: Options.MaxHold is over, and the lease is no longer renewed. It is lost at
	// Event.Until, unless it is released before.
	Expiring func(Event)
	// Lost: a hold is lost; Event.Err is the *LostError.
	Lost func(Event)
	// Released: a hold has been released. If Event.Err is not nil, or the client is being closed,
	// the release goes on in the background.
	Released func(Event)
}

// Event is one thing that happened.
type Event struct {
	Name  string
	Mode  Mode
	Token Token // 0 while there is no lease
	// After is, of Acquired, how long the wait took; of Expiring, Lost and Released, how long the
	// name was held.
	After time.Duration
	Until time.Time // InDoubt, Recovered, Expiring: the trust deadline by the wall clock
	Err   error
	At    time.Time // when it happened; hooks may be called later
	// Context is, if there is ClientOptions.Trace, the context that it returned for the acquire that
	// waits, or with which the hold began. It may have ended. Otherwise it is nil.
	Context context.Context
	// Degraded is Lease.Degraded of the hold: it is in a second store.
	Degraded bool

	// Dropped is how many events before this one were delivered to nobody, because the hooks or the
	// Logger were too slow.
	Dropped int
}

// told has, for each kind of news, its hook, its level and its message in the log.
var told = [...]struct {
	hook  func(*Events) func(Event)
	level slog.Level
	msg   string
}{
	engine.Acquired:  {func(e *Events) func(Event) { return e.Acquired }, slog.LevelDebug, "acquired"},
	engine.Waiting:   {func(e *Events) func(Event) { return e.Waiting }, slog.LevelDebug, "waiting"},
	engine.InDoubt:   {func(e *Events) func(Event) { return e.InDoubt }, slog.LevelWarn, "in doubt"},
	engine.Recovered: {func(e *Events) func(Event) { return e.Recovered }, slog.LevelInfo, "recovered"},
	engine.Expiring:  {func(e *Events) func(Event) { return e.Expiring }, slog.LevelWarn, "expiring"},
	engine.Lost:      {func(e *Events) func(Event) { return e.Lost }, slog.LevelWarn, "lost"},
	engine.GaveBack:  {func(e *Events) func(Event) { return e.Released }, slog.LevelDebug, "released"},
}

// any reports whether there is any hook.
func (e *Events) any() bool {
	for _, t := range told {
		if t.hook(e) != nil {
			return true
		}
	}
	return false
}

// emit queues news for its hook and the logger, in the order in which things happened. It calls neither.
func (c *Client) emit(n *engine.News, traced context.Context) {
	t := told[n.Kind]
	q := queuedEvent{hook: t.hook(&c.opts.Events), level: t.level, msg: t.msg}
	if q.hook == nil && c.opts.Logger == nil {
		return
	}
	q.event = Event{
		Name: n.Name, Mode: n.Mode, Token: n.Token, After: n.After, Err: n.Err, At: time.Now(), Degraded: n.Degraded,
		Context: traced,
	}
	if n.Until != 0 {
		q.event.Until = c.core.Wall(n.Until)
	}
	if n.Kind == engine.GaveBack && n.Err != nil {
		q.level = slog.LevelWarn
	}
	c.events.put(q)
}

// eventQueue is the events that hooks and the logger have not been told yet. Hooks and loggers are
// the user's code, which may block. The queue's own goroutine calls them, so nothing else waits for
// them. The goroutine exists only while there are events (P9).
type eventQueue struct {
	logger *slog.Logger // nil: none

	mu      sync.Mutex
	waiting []queuedEvent
	dropped int           // how many have been dropped since the last one that fitted
	running chan struct{} // closed when the goroutine has delivered all; nil: there is no goroutine
}

// queuedEvent is an event with its hook, its level and its message in the log.
type queuedEvent struct {
	hook  func(Event) // nil: none
	level slog.Level
	msg   string
	event Event
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
	e.event.Dropped, q.dropped = q.dropped, 0
	q.waiting = append(q.waiting, e)
	if q.running == nil {
		q.running = make(chan struct{})
		go q.run()
	}
}

// run delivers one event after the other until there is none.
func (q *eventQueue) run() {
	for e, ok := q.next(); ok; e, ok = q.next() {
		q.tell(e)
	}
}

// next removes the oldest event and returns it. If there is none, it returns false, and the
// goroutine counts as ended.
func (q *eventQueue) next() (queuedEvent, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		close(q.running)
		q.running, q.waiting = nil, nil
		return queuedEvent{}, false
	}
	e := q.waiting[0]
	q.waiting[0] = queuedEvent{} // free what it refers to
	q.waiting = q.waiting[1:]
	return e, true
}

// flush waits until all events have been delivered, for hooksWithin at most.
func (q *eventQueue) flush() {
	q.mu.Lock()
	running := q.running
	q.mu.Unlock()
	if running == nil {
		return
	}
	select {
	case <-running:
	case <-time.After(hooksWithin):
	}
}

// tell calls the hook and writes the log record.
func (q *eventQueue) tell(e queuedEvent) {
	if e.hook != nil {
		q.guard("hook", e.msg, e.event.Name, func() { e.hook(e.event) })
	}
	if q.logger != nil {
		q.logger.LogAttrs(context.Background(), e.level, "holdfast: "+e.msg, e.attrs()...)
	}
}

// guard runs f, which calls the user's code. It writes a panic of f to the log.
func (q *eventQueue) guard(what, event, lock string, f func()) {
	defer func() {
		if p := recover(); p != nil {
			cmp.Or(q.logger, slog.Default()).Error("holdfast: a "+what+" panicked", "event", event, "lock", lock,
				"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	f()
}

// attrs returns the attributes of the event's log record.
func (e *queuedEvent) attrs() []slog.Attr {
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
