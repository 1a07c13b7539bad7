package driver

import (
	"context"
	"iter"
	"time"
)

// Operator is a driver that shows who holds and who waits, and lets an operator end the hold of another client.
type Operator interface {
	// Inspect returns what the store knows of a name. A name that nobody uses is not an error: its Info has no
	// holders and no waiters.
	Inspect(ctx context.Context, name string) (Info, error)
	// List yields the names in use that begin with prefix, in any order, each once, and stops after the first
	// error. It MAY miss a name that changes meanwhile, or show it as it was.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]
	// Break ends the hold on name that has this token, whoever the owner is, and frees the name at once. It
	// MUST return ErrNotHeld if no hold has the token, so that an operator never breaks a later hold than the
	// one that Inspect showed (P4).
	Break(ctx context.Context, name string, token Token) error
}

// Info is the state of one name.
type Info struct {
	Name    string
	Slots   int // of a semaphore; else 0
	Holders []Holder
	Waiters []Waiter // in the order of the queue, where the store keeps one
	// ClosedFor is for how much longer a lock-delay or a minimum hold closes the name, which then may have no
	// holder. 0: it does not.
	ClosedFor time.Duration
}

// Idle reports whether nobody holds the name, waits for it or has closed it.
func (i Info) Idle() bool {
	return len(i.Holders) == 0 && len(i.Waiters) == 0 && i.ClosedFor <= 0
}

// Holder is one hold.
type Holder struct {
	Owner   string
	Mode    Mode
	Permits int // of a semaphore; else 0
	// Token is that of the hold. If the store gives none (Grant.Token is 0), it is a number by which Break
	// knows the hold, or 0. Such a number does not grow, so it is no fencing token.
	Token   Token
	Note    string
	Held    time.Duration // since when, by the store's clock; 0: the store does not know
	Expires time.Duration // in how long, unless renewed; 0: the store does not know, or never
}

// Waiter is one place in the store's queue.
type Waiter struct {
	Owner   string
	Mode    Mode
	Permits int // of a semaphore; 0: the store does not know
	Note    string
	Waiting time.Duration // since when; 0: the store does not know
}
