package holdfast

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/engine"
)

// Inspect returns the holders and the waiters of a name, with their tokens and notes. A name that
// nobody uses is no error. If a hold is handed over inside a process, its token may be 10 ms old.
// The error is ErrUnsupported if the store cannot tell.
func (c *Client) Inspect(ctx context.Context, name string) (Info, error) {
	inspector, err := c.inspector(ctx, "inspect", name)
	if err != nil {
		return Info{}, err
	}
	defer c.stop()
	info, err := inspector.Inspect(ctx, c.opts.Prefix+name)
	if err != nil {
		return Info{}, failed("inspect", name, err)
	}
	info.Name = name
	return info, nil
}

func (c *Client) inspector(ctx context.Context, op, name string) (driver.Inspector, error) {
	inspector, ok := driver.As[driver.Inspector](c.driver, driver.OpInspect)
	if !ok {
		return nil, failed(op, name, ErrUnsupported)
	}
	return inspector, c.admit(ctx, op, name)
}

// admit checks the arguments of an operation on a name, and counts it in. If the error is nil, stop
// must follow.
func (c *Client) admit(ctx context.Context, op, name string) error {
	if ctx == nil {
		return errNilContext(op)
	}
	if err := c.checkName(name); err != nil {
		return failed(op, name, err)
	}
	if err := c.start(); err != nil {
		return failed(op, name, err)
	}
	return nil
}

// List yields the names in use that begin with prefix, in any order, and stops after the first
// error.
func (c *Client) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		// A prefix with which no name can begin is refused, like a bad name (P10).
		sample := strings.TrimSuffix(prefix, "/")
		if prefix == "" {
			sample = "any"
		}
		inspector, err := c.inspector(ctx, "list", sample)
		if err != nil {
			yield(Info{}, err)
			return
		}
		defer c.stop()
		for info, err := range inspector.List(ctx, c.opts.Prefix+prefix) {
			if err != nil {
				yield(Info{}, failed("list", prefix, err))
				return
			}
			info.Name = strings.TrimPrefix(info.Name, c.opts.Prefix)
			if !yield(info, nil) {
				return
			}
		}
	}
}

// Break ends the hold on name that has this token, for an operator, and frees the name at once. If
// there is none, the error is ErrNotHeld: a later hold is never broken (P4). To the store a hold that
// was handed over inside its process is the same one, under the token of the holder before, until a
// renewal tells it: within 10 ms as a rule. Until then that token ends it.
//
// The holder learns of it, on all leases that share the hold, as soon as the store can tell it, at
// the latest at its next renewal. Until then it may still act, so break only holders that are dead,
// or whose resource is guarded by the token.
func (c *Client) Break(ctx context.Context, name string, t Token) error {
	b, ok := driver.As[driver.Breaker](c.driver, driver.OpBreak)
	if !ok {
		return failed("break", name, ErrUnsupported)
	}
	if err := c.admit(ctx, "break", name); err != nil {
		return err
	}
	defer c.stop()
	if t <= 0 {
		return failed("break", name, fmt.Errorf("token is %d: the one that Inspect shows is needed", t))
	}
	if err := b.Break(ctx, c.opts.Prefix+name, t); err != nil {
		return failed("break", name, err)
	}
	return nil
}

// publishWithin bounds the pauses between two checks for a token that the store is about to be
// told: a renewal may be slow, or wait for an earlier batch.
const publishWithin = 32 * engine.CohortAlone

var errUnpublished = errors.New("the hold may have been handed over inside a process, " +
	"and the store may not have learned of it yet")

// CheckSequencer asks the store whether the hold that a sequencer names is still the current one.
// It returns nil, or ErrNotHeld. The answer is about the past; a guard that remembers tokens
// (package fence) is exact.
//
// The store learns within 10 ms, as a rule, that a hold was handed over inside its process.
// CheckSequencer therefore asks again for up to about a second. If the store still does not know, or
// the context ends, the error is ErrUncertain: the sequencer may be the holder's. A hold whose sequencer
// was asked for is not handed over, so the answer is never nil for a lease that was released before.
func (c *Client) CheckSequencer(ctx context.Context, s string) error {
	const op = "check sequencer"
	seq, err := driver.ParseSequencer(s)
	if err != nil {
		return fmt.Errorf("holdfast: %s: %w", op, err)
	}
	name, ours := strings.CutPrefix(seq.Name, c.opts.Prefix)
	switch {
	case !ours:
		return failed(op, seq.Name,
			fmt.Errorf("the name is not under this client's prefix %q", c.opts.Prefix))
	case seq.Token == 0:
		return failed(op, name, fmt.Errorf("it has no token: %w", ErrUnsupported))
	}
	for pause := engine.CohortAlone; ; pause *= 2 {
		info, err := c.Inspect(ctx, name)
		if err != nil {
			return fmt.Errorf("holdfast: %s: %w", op, err)
		}
		behind := false // the store may not know yet that the hold was handed over
		for _, h := range info.Holders {
			// Until a downgrade is answered the lease may be shared and its hold exclusive.
			sameMode := h.Mode == seq.Mode || h.Mode == Exclusive && seq.Mode == Shared
			if h.Token == seq.Token && sameMode {
				return nil
			}
			block := Token(c.caps.TokenBlock)
			behind = behind || h.Token < seq.Token && seq.Token < h.Token+block
		}
		switch {
		case !behind:
			return failed(op, name, ErrNotHeld)
		case pause > publishWithin || !rest(ctx, pause):
			return failed(op, name, ErrUncertain, errUnpublished, ended(ctx))
		}
	}
}
