package fence

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfastlock/holdfast/driver"
)

// The errors of a [Guard], beside [ErrStale], [ErrNoToken] and [ErrInvalid].
var (
	// ErrWrongHold: the sequencer is not one for this use, so acquiring the same lock again would
	// not help: another lock's, or a shared one where an exclusive one is needed.
	ErrWrongHold = errors.New("not the hold that is needed")
	// ErrUnchecked: Guard.Check could not tell whether the hold is current. The request may be
	// repeated under the same hold.
	ErrUnchecked = errors.New("the hold cannot be checked now")
)

// Guard decides on requests that carry a sequencer, as [Handler] does for HTTP and package
// grpcfence for gRPC: use it where requests come by another protocol. The zero value is ready; it is
// safe for concurrent use, and must not be copied after its first use.
type Guard struct {
	// Check is asked whether a sequencer is current before it may raise a mark: see
	// [HandlerOptions].Check.
	Check func(ctx context.Context, sequencer string) error
	// Gates keep the marks. Nil: the guard's own, kept for ever.
	Gates *Gates

	own Gates
}

// Use is what a request does to a resource.
type Use struct {
	// Name is the name of the lock that the request needs, as the store knows it. It counts if
	// Named; otherwise the sequencer's own name is the resource.
	Name  string
	Named bool
	// Reads says that the request only reads, so that a shared hold will do.
	Reads bool
}

// Admit reads a sequencer and adopts its token for the use. It does the cheap checks first, and
// raises the mark last. A refusal matches one of [ErrInvalid] (the text is malformed, or its hold
// cannot be fenced), [ErrNoToken], [ErrWrongHold], [ErrStale] and [ErrUnchecked] by errors.Is, and
// its text may be shown to the client. The sequencer is returned as far as it could be read.
func (g *Guard) Admit(ctx context.Context, text string, use Use) (driver.Sequencer, error) {
	s, err := driver.ParseSequencer(text)
	if err != nil {
		return s, &refusal{ErrInvalid, err.Error()}
	}
	if err := checkUse(s.Name, s.Token, s.Mode); err != nil {
		return s, err
	}
	if use.Named && use.Name != s.Name {
		return s, &refusal{ErrWrongHold, fmt.Sprintf("this request needs the lock %q, not %q", use.Name, s.Name)}
	}
	if s.Mode == driver.Shared && !use.Reads {
		return s, &refusal{ErrWrongHold, fmt.Sprintf("this request needs an exclusive hold of %q, not a shared one", s.Name)}
	}
	gates := g.gates()
	if g.Check != nil && gates.raises(s.Name, s.Token, s.Mode) {
		if err := g.Check(ctx, text); driver.Gone(err) {
			return s, &refusal{ErrStale, fmt.Sprintf("%v: the hold of %q is gone", ErrStale, s.Name)}
		} else if err != nil {
			return s, &refusal{ErrUnchecked, fmt.Sprintf("the hold of %q cannot be checked now", s.Name)}
		}
	}
	return s, gates.Admit(s.Name, s.Token, s.Mode)
}

func (g *Guard) gates() *Gates {
	if g.Gates != nil {
		return g.Gates
	}
	return &g.own
}

// refusal is a kind of error with a text for people who debug the client. The text says nothing of
// what Check answered, which may not be for clients to read.
type refusal struct {
	kind error
	text string
}

func (r *refusal) Error() string { return r.text }

func (r *refusal) Unwrap() error { return r.kind }

type contextKey struct{}

// NewContext returns a context with the sequencer of an admitted request, for [FromContext].
func NewContext(ctx context.Context, s driver.Sequencer) context.Context {
	return context.WithValue(ctx, contextKey{}, s)
}

// FromContext returns the sequencer that [Handler], or a guard of another protocol, admitted for the
// request with this context, and false if it let the request pass without one.
func FromContext(ctx context.Context) (driver.Sequencer, bool) {
	s, ok := ctx.Value(contextKey{}).(driver.Sequencer)
	return s, ok
}
