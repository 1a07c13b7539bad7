package holdfast

import (
	"context"
	"log/slog"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/engine"
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

// emit queues news for its hook and the logger. It calls neither, so it may be called with the
// client's mutex. It must be called with it, at the moment of the change, so that a hold's events
// are queued in their order.
func (c *Client) emit(n *engine.News) {
	t := told[n.Kind]
	q := queuedEvent{hook: t.hook(&c.opts.Events), level: t.level, msg: t.msg}
	if q.hook == nil && c.opts.Logger == nil {
		return
	}
	q.event = Event{Name: n.Name, Mode: n.Mode, Token: n.Token, After: n.After, Err: n.Err, At: time.Now(), Degraded: n.Degraded}
	if n.About != nil {
		q.event.Context = n.About.Ref.(*Lease).tracedLocked()
	}
	if n.Until != 0 {
		q.event.Until = c.wall(n.Until)
	}
	if n.Kind == engine.GaveBack && n.Err != nil {
		q.level = slog.LevelWarn
	}
	c.events.put(q)
}

// wall turns an instant into wall time, by the present clocks.
func (c *Client) wall(at driver.Instant) time.Time {
	return time.Now().Add(at.Sub(c.clock.Now()))
}
