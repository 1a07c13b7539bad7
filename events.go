package holdfast

import (
	"context"
	"log/slog"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Events are functions that are told what happens to a client's locks; each may
// be nil. They are called on goroutines of the client or of its callers, several
// at a time, and must return quickly: what comes next does not wait for them.
// They must not call Close.
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
	After time.Duration // Acquired: how long the wait took; Lost, Released: how long the name was held
	Until time.Time     // InDoubt, Recovered: the trust deadline by the wall clock
	Err   error
}

// emit calls the hook and writes the log record. It must be called without the
// client's mutex, as the hook may call anything.
func (c *Client) emit(hook func(Event), level slog.Level, msg string, e Event) {
	if hook != nil {
		hook(e)
	}
	if c.opts.Logger == nil {
		return
	}
	attrs := []slog.Attr{slog.String("lock", e.Name), slog.String("mode", e.Mode.String())}
	if e.Token != 0 {
		attrs = append(attrs, slog.Int64("token", int64(e.Token)))
	}
	if e.After != 0 {
		attrs = append(attrs, slog.Duration("after", e.After))
	}
	if !e.Until.IsZero() {
		attrs = append(attrs, slog.Time("until", e.Until))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.Any("error", e.Err))
	}
	c.opts.Logger.LogAttrs(context.Background(), level, "holdfast: "+msg, attrs...)
}

// wall turns an instant into wall time, as good as the present clocks go.
func (c *Client) wall(at driver.Instant) time.Time {
	return time.Now().Add(at.Sub(c.clock.Now()))
}
