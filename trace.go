package holdfast

import (
	"context"

	"github.com/holdfastlock/holdfast/internal/core"
	"github.com/holdfastlock/holdfast/internal/engine"
)

// Attempt is an Acquire or TryAcquire that begins: see ClientOptions.Trace.
type Attempt struct {
	Name string // without the client's prefix
	Mode Mode
	Try  bool // it does not wait
}

// Outcome is how an Attempt has ended: with a lease or an error.
type Outcome struct {
	Lease  *Lease // nil: there is Err
	Source Source // of the lease
	Err    error
}

// Source says where an acquire got its hold from.
type Source uint8

// The sources of a hold.
const (
	// SourceFree: the store gave it, and did not tell to wait before. The acquire may have waited
	// behind others of its client.
	SourceFree Source = iota
	// SourceStore: the store gave it, after it had told to wait: a hand-over between clients.
	SourceStore
	// SourceLocal: other goroutines of the client handed it over, or share it, without a request to
	// the store.
	SourceLocal
	// SourceReentrant: it is the hold that the context carries (Options.Reentrant).
	SourceReentrant
)

var sources = [...]Source{
	engine.Free: SourceFree, engine.Queued: SourceStore, engine.Handed: SourceLocal, engine.Rejoined: SourceReentrant,
}

// String returns "free", "store", "local" or "reentrant".
func (s Source) String() string {
	names := [...]string{"free", "store", "local", "reentrant"}
	if int(s) >= len(names) {
		return "unknown"
	}
	return names[s]
}

// acquireTraced is acquire between the two calls of ClientOptions.Trace.
func (l *Lock) acquireTraced(
	ctx context.Context, trace func(context.Context, Attempt) (context.Context, func(Outcome)), op string, try bool,
) (*Lease, error) {
	c := l.settings.client
	traced, end := ctx, func(Outcome) {}
	c.guardTrace(l.name, func() {
		within, after := trace(ctx, Attempt{Name: l.name, Mode: l.settings.Mode, Try: try})
		if within != nil {
			traced = within
		}
		if after != nil {
			end = after
		}
	})
	outcome := Outcome{Err: core.ErrPanicked} // the caller gets the driver's panic
	defer func() { c.guardTrace(l.name, func() { end(outcome) }) }()
	lease, err := l.acquireChecked(traced, traced, op, try)
	outcome = Outcome{Lease: lease, Err: err}
	if lease != nil {
		outcome.Source = sources[lease.core.State().Source]
	}
	return lease, err
}

// guardTrace runs f, which calls the user's code. The log gets a panic of it: it must neither lose a
// lease nor fail an acquire.
func (c *Client) guardTrace(name string, f func()) {
	c.events.guard(queuedEvent{msg: "acquire", event: Event{Name: name}}, "trace", c.opts.Logger, f)
}
