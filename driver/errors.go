package driver

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// The errors of the seam. Package holdfast exports the same values, so errors.Is works with either. Match them
// with errors.Is, never with ==.
var (
	// ErrHeld: the name is taken, closed, or has waiters that come first.
	ErrHeld = errors.New("held by another")
	// ErrNotHeld: the store has no hold of this owner any more.
	ErrNotHeld = errors.New("not held")
	// ErrBroken: an operator broke the hold.
	ErrBroken = errors.New("broken by an operator")
	// ErrMismatch: the name is in use as another kind of lock or with another number of slots.
	ErrMismatch = errors.New("name is in use as another kind of lock, or with another number of slots")
	// ErrUnsupported: the store cannot do this.
	ErrUnsupported = errors.New("not supported by this store")
	// ErrUncertain: the store may or may not have done it.
	ErrUncertain = errors.New("outcome unknown")
	// ErrClosed: the client or driver is closed.
	ErrClosed = errors.New("closed")
)

// OpenError says that a store could not be reached, refuses the user, or is not as locks need it, as opposed to a mistake
// in the URL or the options. It matches the error inside it.
type OpenError struct {
	Err     error
	Lasting bool // no waiting mends it
}

// Error returns the text of the error.
func (e *OpenError) Error() string { return e.Err.Error() }

// Unwrap returns the error.
func (e *OpenError) Unwrap() error { return e.Err }

// HeldError is ErrHeld with what the store knows of the holder. All fields are hints; the zero value of each
// means that it is not known.
type HeldError struct {
	Name      string
	Note      string        // the note of a holder
	Token     Token         // the token of a holder
	Queued    int           // how many wait, this request included where it is queued; 0 MAY mean that it is not known
	Ahead     int           // how many of them come before this request, where it is queued; the holder MAY count as one
	ExpiresIn time.Duration // when the first of the holds in the way ends unless it is renewed
	// Poll is after which pause a waiter of a store without a queue should ask again, at most; package holdfast
	// jitters it down to half. It is for a store that knows how quick it is. 0: Caps.Poll.
	Poll time.Duration
	// Forgotten is for how long the store grants nothing to anybody, because it may have forgotten holds: it was started, or
	// has taken over from another. 0: it grants.
	Forgotten time.Duration
}

// Error says who holds the name, as far as it is known. The error around it says the name.
func (e *HeldError) Error() string {
	if e.Forgotten > 0 {
		return fmt.Sprintf("not granted for another %v: the store was started, flushed or replaced, and may have forgotten "+
			"who holds it (hf.forget=go in the store's URL grants at once; in a Redlock's hf.durable=yes, if its servers are)", e.Forgotten.Round(time.Second/10))
	}
	var b strings.Builder
	b.WriteString(ErrHeld.Error())
	switch {
	case e.Note == "" && e.Token == 0 && e.ExpiresIn > 0: // after a minimum hold there is no holder
		fmt.Fprintf(&b, ", or closed for another %v", e.ExpiresIn.Round(time.Second/10))
	case e.Note != "":
		fmt.Fprintf(&b, " (%q", e.Note)
		if e.Token != 0 {
			fmt.Fprintf(&b, ", token %d", e.Token)
		}
		b.WriteString(")")
	}
	return b.String()
}

// Is makes a HeldError match ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// Gone reports whether err says that the hold is gone for good: ErrNotHeld or ErrBroken. It is for errors of a
// renewal, release or downgrade.
func Gone(err error) bool {
	return errors.Is(err, ErrNotHeld) || errors.Is(err, ErrBroken)
}

// Mismatch returns ErrMismatch, with what the name is in use as and what was asked for: semaphores with so many slots,
// or with 0 another kind of lock.
func Mismatch(inUse, asked int) error {
	switch {
	case inUse == 0:
		return fmt.Errorf("%w: as a mutex or read-write lock, not as a semaphore of %d", ErrMismatch, asked)
	case asked == 0:
		return fmt.Errorf("%w: as a semaphore of %d", ErrMismatch, inUse)
	}
	return fmt.Errorf("%w: %d, not %d", ErrMismatch, inUse, asked)
}

// Uncertain returns err marked as ErrUncertain, for a request whose outcome err left unknown.
func Uncertain(err error) error {
	return fmt.Errorf("%w: %w", ErrUncertain, err)
}
