package holdfast

import (
	"context"

	"github.com/holdfastlock/holdfast/internal/core"
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
	// A panic of the user's code must neither lose a lease nor fail an acquire.
	c.events.guard("trace", "acquire", l.name, func() {
		within, after := trace(ctx, Attempt{Name: l.name, Mode: l.settings.Mode, Try: try})
		if within != nil {
			traced = within
		}
		if after != nil {
			end = after
		}
	})
	outcome := Outcome{Err: core.ErrPanicked} // the caller gets the driver's panic
	defer func() { c.events.guard("trace", "acquire", l.name, func() { end(outcome) }) }()
	lease, err := l.acquireChecked(traced, traced, op, try)
	outcome = Outcome{Lease: lease, Err: err}
	if lease != nil {
		outcome.Source = Source(lease.core.Snapshot().Source) // engine.Source counts in the same order
	}
	return lease, err
}
