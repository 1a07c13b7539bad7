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

// Inspect returns who holds a name and who waits for it, with their tokens and
// notes. Of a hold that is passed on inside a process it may show a token that is 10 ms
// old. A name that nobody uses is no error. ErrUnsupported if the store cannot
// tell.
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

// admit checks what an operation on a name needs, and counts it in: if there is
// no error, stop must follow.
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

// List yields the names in use that begin with prefix, in any order, and stops
// after the first error.
func (c *Client) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		// What no name can begin with is refused, like a bad name (P10).
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

// Break ends somebody's hold, for an operator: the one that has this token and
// no later one (P4), else the error is ErrNotHeld. The name is free at once, and
// the holder, with all leases that share the hold, learns of it as soon as the
// store can tell it, at the latest when it
// next renews; until then it may still act, so break what is dead or
// guarded by its token.
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

// sayWithin is the longest pause between two looks for a token that the store is about
// to be told: a renewal may be slow, or wait for a batch before it.
const sayWithin = 32 * engine.CohortAlone

var errUnsaid = errors.New("the hold may have been passed on inside a process, and the store not have learned of it")

// CheckSequencer asks the store whether the hold that a sequencer names is
// still the current one: nil, or ErrNotHeld. The answer is about the past; a guard that
// remembers tokens (package fence) is exact.
//
// A hold may just have been passed on inside a process. The store learns of that within
// 10 ms, as a rule, and until then the hold before passes for the current one. Then
// CheckSequencer looks again for up to about a second; if the store still does not know,
// or the context ends, the error is ErrUncertain: the sequencer may be the holder's.
func (c *Client) CheckSequencer(ctx context.Context, s string) error {
	const op = "check sequencer"
	seq, err := driver.ParseSequencer(s)
	if err != nil {
		return fmt.Errorf("holdfast: %s: %w", op, err)
	}
	name, ours := strings.CutPrefix(seq.Name, c.opts.Prefix)
	switch {
	case !ours:
		return failed(op, seq.Name, fmt.Errorf("the name is not under this client's prefix %q", c.opts.Prefix))
	case seq.Token == 0:
		return failed(op, name, fmt.Errorf("it has no token: %w", ErrUnsupported))
	}
	for pause := engine.CohortAlone; ; pause *= 2 {
		info, err := c.Inspect(ctx, name)
		if err != nil {
			return fmt.Errorf("holdfast: %s: %w", op, err)
		}
		unsaid := false // the store may not know yet that the hold was passed on: see turn
		for _, h := range info.Holders {
			// A downgrade without an answer makes a lease shared before its hold is.
			if h.Token == seq.Token && (h.Mode == seq.Mode || h.Mode == Exclusive && seq.Mode == Shared) {
				return nil
			}
			unsaid = unsaid || h.Token < seq.Token && seq.Token < h.Token+Token(c.caps.TokenBlock)
		}
		switch {
		case !unsaid:
			return failed(op, name, ErrNotHeld)
		case pause > sayWithin || !rest(ctx, pause):
			return failed(op, name, ErrUncertain, errUnsaid, ended(ctx))
		}
	}
}
