package holdfast

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/core/engine"
	"github.com/holdfastlock/holdfast/internal/ctxerr"
	"github.com/holdfastlock/holdfast/internal/pause"
)

// Inspect returns the holders and the waiters of a name, with their tokens and notes. A name that
// nobody uses is no error. If a hold is handed over inside a process, its token may be 10 ms old.
// The error is ErrUnsupported if the store cannot tell.
func (c *Client) Inspect(ctx context.Context, name string) (Info, error) {
	operator, err := c.operator(ctx, "inspect", name)
	if err != nil {
		return Info{}, err
	}
	defer c.core.Stop()
	info, err := operator.Inspect(ctx, c.opts.Prefix+name)
	if err != nil {
		return Info{}, failed("inspect", name, err)
	}
	info.Name = name
	return info, nil
}

// operator returns the driver as an operator, and counts the operation in. If the error is nil, stop must
// follow.
func (c *Client) operator(ctx context.Context, op, name string) (driver.Operator, error) {
	operator, ok := driver.As[driver.Operator](c.driver)
	if !ok {
		return nil, failed(op, name, ErrUnsupported)
	}
	if ctx == nil {
		return nil, errNilContext(op)
	}
	err := c.checkName(name)
	if err == nil {
		err = c.core.Start()
	}
	if err != nil {
		return nil, failed(op, name, err)
	}
	return operator, nil
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
		operator, err := c.operator(ctx, "list", sample)
		if err != nil {
			yield(Info{}, err)
			return
		}
		defer c.core.Stop()
		for info, err := range operator.List(ctx, c.opts.Prefix+prefix) {
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
	operator, err := c.operator(ctx, "break", name)
	if err != nil {
		return err
	}
	defer c.core.Stop()
	if t <= 0 {
		return failed("break", name, fmt.Errorf("token is %d: the one that Inspect shows is needed", t))
	}
	if err := operator.Break(ctx, c.opts.Prefix+name, t); err != nil {
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
	for again := engine.CohortAlone; ; again *= 2 {
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
		case again > publishWithin || !pause.Sleep(ctx, again):
			return failed(op, name, ErrUncertain, errUnpublished, ctxerr.Cause(ctx))
		}
	}
}

// Watch yields who holds a name: first the present state, then the new state after each change of a
// holder, a note or a lock-delay. It shows the waiters, but does not yield when only they change.
// It ends with the context or the client, or when the caller stops.
//
// A change is seen at once if the store reports it (driver.Watcher), and otherwise, or if the
// report is lost, at the next poll (Caps.Poll). So a short state may be missed: the tokens then
// tell that others came between.
//
// An error says that the state is not known at present. One is yielded for each failed poll, and
// the watch goes on until the caller stops. It ends by itself after ErrUnsupported (the store
// cannot tell who holds), a bad name, and ErrClosed.
func (c *Client) Watch(ctx context.Context, name string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		operator, err := c.operator(ctx, "watch", name)
		if err != nil {
			yield(Info{}, err)
			return
		}
		c.core.Stop() // Close does not wait for a watch, which may go on for ever
		ctx, free := c.core.UntilClosed(ctx)
		defer free()
		w := &watch{client: c, operator: operator, name: name, unsubscribe: func() {},
			again: pause.Backoff{Min: 5 * time.Millisecond, Max: c.caps.PollInterval()}}
		for w.next(ctx) {
			if !yield(w.info, w.err) {
				return
			}
		}
		if errors.Is(context.Cause(ctx), ErrClosed) {
			yield(Info{}, failed("watch", name, ErrClosed))
		}
	}
}

// watch is the state of one Watch.
type watch struct {
	client      *Client
	operator    driver.Operator
	name        string
	hints       <-chan struct{} // nil: the driver gives none, or did not yet
	unsubscribe func()          // ends the hints
	again       pause.Backoff   // before the next poll after hints that ended
	polled      bool
	known       bool // info is the result of the last poll
	info        Info
	err         error
}

// next waits for something new, puts it in info and err, and returns true. It returns false if the
// context has ended.
func (w *watch) next(ctx context.Context) bool {
	for ctx.Err() == nil {
		if w.polled {
			w.rest(ctx)
		}
		w.subscribe(ctx)
		info, err := w.poll(ctx)
		switch {
		case ctx.Err() != nil:
			return false
		case err != nil:
			w.known, w.info, w.err = false, Info{}, failed("watch", w.name, err)
			return true
		case !w.known || !sameHolders(w.info, info):
			w.known, w.info, w.err = true, info, nil
			return true
		}
		w.info = info // its remaining times are newer
	}
	return false
}

// subscribe subscribes to the driver's hints of changes. It is called before the poll, so that a hint
// follows for every change that the poll does not show.
func (w *watch) subscribe(ctx context.Context) {
	if w.hints != nil {
		return
	}
	if d, ok := driver.As[driver.Watcher](w.client.driver); ok {
		w.unsubscribe() // frees the context of hints that failed or ended (P9)
		ctx, w.unsubscribe = context.WithCancel(ctx)
		tooLong := time.AfterFunc(pollWithin, w.unsubscribe)
		w.hints, _ = d.Watch(ctx, w.client.opts.Prefix+w.name) // after an error the polls remain
		tooLong.Stop()
	}
}

func (w *watch) poll(ctx context.Context) (Info, error) {
	w.polled = true
	if err := w.client.core.Start(); err != nil {
		return Info{}, err
	}
	defer w.client.core.Stop()
	ctx, cancel := context.WithTimeout(ctx, pollWithin)
	defer cancel()
	info, err := w.operator.Inspect(ctx, w.client.opts.Prefix+w.name)
	info.Name = w.name
	return info, err
}

// pollWithin bounds one request to a store that may not answer.
const pollWithin = 5 * time.Second

// rest waits for a hint, for the next poll, or until a hold ends unless it is renewed.
func (w *watch) rest(ctx context.Context) {
	next := pause.Jitter(w.client.caps.PollInterval())
	for _, h := range w.info.Holders {
		if h.Expires > 0 {
			next = min(next, h.Expires+time.Millisecond)
		}
	}
	if w.info.ClosedFor > 0 {
		next = min(next, w.info.ClosedFor+time.Millisecond)
	}
	timer := time.NewTimer(next)
	defer timer.Stop()
	select {
	case _, more := <-w.hints:
		if more {
			w.again.Reset()
			return
		}
		// Poll and subscribe again soon, but not in a hot loop if that ends at once too.
		w.hints = nil
		timer.Reset(min(next, w.again.Next()))
	case <-timer.C:
		return
	case <-ctx.Done():
		return
	}
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// sameHolders reports whether two polls show the same holds.
func sameHolders(a, b Info) bool {
	same := func(a, b driver.Holder) bool {
		return a.Owner == b.Owner && a.Token == b.Token && a.Mode == b.Mode && a.Note == b.Note
	}
	return slices.EqualFunc(a.Holders, b.Holders, same) &&
		(a.ClosedFor > 0) == (b.ClosedFor > 0) && a.Slots == b.Slots
}
