package holdfast

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Watch yields who holds a name: first as it is, and then again whenever that has
// changed, a note or a lock-delay included, until the context or the client ends or the caller
// stops. Who waits is shown, but is no change.
//
// It learns of a change at once where the store tells (driver.OpWatch), and
// otherwise, or if the telling is lost, by a look at every poll (Caps.Poll). So it may miss
// what was there for a short time only: the tokens tell that others came
// between.
//
// An error says that at present the answer is not known, once for each look that
// failed; the watch goes on until the caller stops. It ends by itself after ErrUnsupported, if the store cannot
// tell who holds, a bad name, and ErrClosed.
func (c *Client) Watch(ctx context.Context, name string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		inspector, err := c.inspector(ctx, "watch", name)
		if err != nil {
			yield(Info{}, err)
			return
		}
		c.stop() // a watch has no end of its own: it does not keep Close waiting
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(c.closing, func() { cancel(ErrClosed) })()
		w := &watch{client: c, inspector: inspector, name: name, deafen: func() {}}
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

// watch is what one Watch knows.
type watch struct {
	client    *Client
	inspector driver.Inspector
	name      string
	hints     <-chan struct{} // nil: none are to be had, or not yet
	deafen    func()          // ends the hints
	pause     time.Duration   // after hints that ended: grows
	looked    bool
	known     bool // info is what the last look has shown
	info      Info
	err       error
}

// next waits for something new and reports whether there is any: it is in info
// and err. False: the context has ended.
func (w *watch) next(ctx context.Context) bool {
	for ctx.Err() == nil {
		if w.looked {
			w.rest(ctx)
		}
		w.listen(ctx)
		info, err := w.look(ctx)
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
		w.info = info // the holds' remaining times are newer
	}
	return false
}

// listen asks the driver to tell of changes, before the look: what the look does
// not show is told later.
func (w *watch) listen(ctx context.Context) {
	if w.hints != nil {
		return
	}
	if d, ok := driver.As[driver.Watcher](w.client.driver, driver.OpWatch); ok {
		w.deafen() // the context of hints that failed or ended stays no longer than they (P9)
		ctx, w.deafen = context.WithCancel(ctx)
		tooLong := time.AfterFunc(lookWithin, w.deafen)
		w.hints, _ = d.Watch(ctx, w.client.opts.Prefix+w.name) // fails: the polls remain
		tooLong.Stop()
	}
}

func (w *watch) look(ctx context.Context) (Info, error) {
	w.looked = true
	if err := w.client.start(); err != nil {
		return Info{}, err
	}
	defer w.client.stop()
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	info, err := w.inspector.Inspect(ctx, w.client.opts.Prefix+w.name)
	info.Name = w.name
	return info, err
}

// lookWithin bounds one question to a store that may not answer.
const lookWithin = 5 * time.Second

// rest waits for a hint, the next poll, or the moment when a hold ends unless it
// is renewed.
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
		// Look and listen again soon, but not in a hot loop if that ends at once too.
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

// sameHolders reports whether two looks show the same holds.
func sameHolders(a, b Info) bool {
	same := func(a, b driver.Holder) bool {
		return a.Owner == b.Owner && a.Token == b.Token && a.Mode == b.Mode && a.Note == b.Note
	}
	return slices.EqualFunc(a.Holders, b.Holders, same) && (a.ClosedFor > 0) == (b.ClosedFor > 0) && a.Slots == b.Slots
}
