package driver

import "context"

// Annotator is a driver that can change the note of a hold (OpAnnotate).
type Annotator interface {
	// Annotate makes the grant's Note the one that Inspect shows. It MUST NOT change anything else
	// of the hold, neither its token nor when it ends. It returns ErrNotHeld or ErrBroken if the
	// hold is gone. After any other error the note MAY be the old one or the new one.
	Annotate(context.Context, Grant) error
}
