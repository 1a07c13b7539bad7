package holdfast

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Watch yields who holds a name: first the present state, then the new state after each change of a
// holder, a note or a lock-delay. It shows the waiters, but does not yield when only they change.
// It ends with the context or the client, or when the caller stops.
//
// A change is seen at once if the store reports it (driver.OpWatch), and otherwise, or if the
// report is lost, at the next poll (Caps.Poll). So a short state may be missed: the tokens then
// tell that others came between.
//
// An error says that the state is not known at present. One is yielded for each failed poll, and
// the watch goes on until the caller stops. It ends by itself after ErrUnsupported (the store
// cannot tell who holds), a bad name, and ErrClosed.
func (c *Client) Watch(ctx context.Context, name string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		inspector, err := c.inspector(ctx, "watch", name)
		if err != nil {
			yield(Info{}, err)
			return
		}
		c.stop() // Close does not wait for a watch, which may go on for ever
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(c.closing, func() { cancel(ErrClosed) })()
		w := &watch{client: c, inspector: inspector, name: name, unsubscribe: func() {}}
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
	inspector   driver.Inspector
	name        string
	hints       <-chan struct{} // nil: the driver gives none, or did not yet
	unsubscribe func()          // ends the hints
	pause       time.Duration   // before the next poll after hints that ended; grows
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
	if d, ok := driver.As[driver.Watcher](w.client.driver, driver.OpWatch); ok {
		w.unsubscribe() // frees the context of hints that failed or ended (P9)
		ctx, w.unsubscribe = context.WithCancel(ctx)
		tooLong := time.AfterFunc(pollWithin, w.unsubscribe)
		w.hints, _ = d.Watch(ctx, w.client.opts.Prefix+w.name) // after an error the polls remain
		tooLong.Stop()
	}
}

func (w *watch) poll(ctx context.Context) (Info, error) {
	w.polled = true
	if err := w.client.start(); err != nil {
		return Info{}, err
	}
	defer w.client.stop()
	ctx, cancel := context.WithTimeout(ctx, pollWithin)
	defer cancel()
	info, err := w.inspector.Inspect(ctx, w.client.opts.Prefix+w.name)
	info.Name = w.name
	return info, err
}

// pollWithin bounds one request to a store that may not answer.
const pollWithin = 5 * time.Second

// rest waits for a hint, for the next poll, or until a hold ends unless it is renewed.
func (w *watch) rest(ctx context.Context) {
	pause := jitter(w.client.caps.PollInterval())
	for _, h := range w.info.Holders {
		if h.Expires > 0 {
			pause = min(pause, h.Expires+time.Millisecond)
		}
	}
	if w.info.ClosedFor > 0 {
		pause = min(pause, w.info.ClosedFor+time.Millisecond)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case _, more := <-w.hints:
		if more {
			w.pause = 0
			return
		}
		// Poll and subscribe again soon, but not in a hot loop if that ends at once too.
		w.hints = nil
		w.pause = min(max(2*w.pause, firstPause), w.client.caps.PollInterval())
		timer.Reset(min(pause, jitter(w.pause)))
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
