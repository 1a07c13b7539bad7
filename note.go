package holdfast

import (
	"context"
	"fmt"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/engine"
)

// SetNote changes the note that operators and watchers see beside the hold: up to MaxNote bytes of
// UTF-8, "" for the default (Options.Note). All leases of the hold have the same note. The error is
// ErrUnsupported if the store cannot change a note, and that of Err if the lease is over. After any
// other error, which is the store's, the note may have changed or not.
func (le *Lease) SetNote(ctx context.Context, note string) error {
	const op = "set note"
	if ctx == nil {
		return errNilContext(op)
	}
	c := le.client
	a, ok := driver.As[driver.Annotator](c.driver, driver.OpAnnotate)
	if !ok {
		return failed(op, le.Name(), ErrUnsupported)
	}
	note = noteOrDefault(note)
	if err := checkNote(note); err != nil {
		return failed(op, le.Name(), fmt.Errorf("it has %w", err))
	}
	if err := le.Err(); err != nil {
		return failed(op, le.Name(), err)
	}
	if err := c.start(); err != nil {
		return failed(op, le.Name(), err)
	}
	defer c.stop()
	next := c.step(engine.Event{Kind: engine.AnnotateCalled, Caller: &le.caller, Note: note})
	if next.Do == engine.Ask {
		err := a.Annotate(ctx, next.Grant)
		next = c.step(engine.Event{
			Kind: engine.AnnotateAnswered, Caller: &le.caller, Note: note, Err: err,
		})
	}
	return le.result(op, next.Err)
}
