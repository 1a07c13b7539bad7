package holdfast

import (
	"log/slog"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/engine"
)

// Events are functions that are told what happens to a client's locks: its hooks. Each
// may be nil. One goroutine of the client calls them, one after the other, in the order
// in which things happened: Acquired of a hold comes before its Lost or Released.
//
// No lock waits for a hook. One that blocks holds up other hooks and the client's Logger
// only: renewals, losses and releases go on, and their events are queued. Some thousands
// are; those that do not fit are dropped, and counted in the next one's Event.Dropped.
// So a hook may be late: whoever has to stop working in time uses Lease.Done or
// Lease.WithContext instead. A hook that panics is recovered, and the panic is logged, by
// slog.Default if the client has no Logger.
//
// Hooks may use the client. Close waits for hooks, for 1 s at most, so one that calls it
// holds itself up for that long; "go client.Close()" does not.
type Events struct {
	// Acquired: a hold begins, which several leases may share. It ends with Lost
	// or Released.
	Acquired func(Event)
	// Waiting: an Acquire has been told by the store to wait; Event.Err is the
	// *HeldError.
	Waiting func(Event)
	// InDoubt: a renewal has failed. The lease is trusted until Event.Until;
	// who needs time to stop should use it.
	InDoubt func(Event)
	// Recovered: a lease in doubt has been renewed after all.
	Recovered func(Event)
	// Expiring: Options.MaxHold is over, and the lease is not renewed any more. It is
	// lost at Event.Until, if it is not released before.
	Expiring func(Event)
	// Lost: a hold is lost; Event.Err is the *LostError.
	Lost func(Event)
	// Released: a hold has been given back, or, where Event.Err is not nil or the
	// client is being closed, is given back in the background.
	Released func(Event)
}

// Event is one thing that happened.
type Event struct {
	Name  string
	Mode  Mode
	Token Token         // 0 while there is no lease
	After time.Duration // Acquired: how long the wait took; Expiring, Lost, Released: how long the name was held
	Until time.Time     // InDoubt, Recovered, Expiring: the trust deadline by the wall clock
	Err   error

	// Dropped is how many events before this one were told to nobody, because the
	// hooks or the Logger were too slow.
	Dropped int
}

// told says how each kind of news is told.
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
	for _, how := range told {
		if how.hook(e) != nil {
			return true
		}
	}
	return false
}

// emit queues news for its hook and the logger. It calls neither, so it may be called with
// the client's mutex; and it must be, at the moment when things change, so that a hold's
// events are queued in their order.
func (c *Client) emit(n *engine.News) {
	how := told[n.Kind]
	q := queuedEvent{hook: how.hook(&c.opts.Events), level: how.level, msg: how.msg}
	if q.hook == nil && c.opts.Logger == nil {
		return
	}
	q.event = Event{Name: n.Name, Mode: n.Mode, Token: n.Token, After: n.After, Err: n.Err}
	if n.Until != 0 {
		q.event.Until = c.wall(n.Until)
	}
	if n.Kind == engine.GaveBack && n.Err != nil {
		q.level = slog.LevelWarn
	}
	c.events.put(q)
}

// wall turns an instant into wall time, as good as the present clocks go.
func (c *Client) wall(at driver.Instant) time.Time {
	return time.Now().Add(at.Sub(c.clock.Now()))
}
