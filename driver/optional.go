package driver

import (
	"context"
	"iter"
	"time"
)

// As returns d as the optional interface T, if it has T's methods. A wrapper has the methods of every
// interface, whatever the driver inside can do: its method Lacks(ability any) bool, whose argument is a *T,
// reports what it lacks.
func As[T any](d Driver) (T, bool) {
	t, ok := d.(T)
	if w, wraps := d.(interface{ Lacks(ability any) bool }); ok && wraps && w.Lacks((*T)(nil)) {
		var zero T
		return zero, false
	}
	return t, ok
}

// Queuer is a driver whose store queues waiters itself.
type Queuer interface {
	// Enqueue takes or confirms the owner's place in the name's queue, and collects the hold once it is
	// granted. It returns the grant if the owner has the hold, now or already, and ErrHeld if the owner is
	// queued. Other errors are those of Try. It MUST be idempotent by Owner: after ErrUncertain package
	// holdfast either asks again with the same owner or withdraws.
	//
	// The store MAY drop a place that is not confirmed for two polls (Caps.Poll). The next Enqueue then takes a
	// new place at the end.
	Enqueue(context.Context, Request) (Grant, error)

	// Wait blocks, on the caller's goroutine, until the queued owner is granted the hold, and returns the
	// grant. It returns ErrHeld when it is worth asking again by Enqueue. Wake-ups MAY be spurious and MAY be
	// missed: the context ends after one poll. A Wait that ends without a grant MUST leave the place as it is.
	//
	// A hold that the store granted while the client waited is a claim, so that one who has died delays others
	// no longer (P7): Claim MUST be set, Valid MUST be at most two polls, and Since MUST be the sending of the
	// last request of this owner that the store answered before granting.
	Wait(context.Context, Request) (Grant, error)
}

// ContentionHinter is a Queuer that may know, without asking the store, that others want a name. Package
// holdfast then queues at once, without a Try that is likely to be refused. A wrong answer costs a little time
// only.
type ContentionHinter interface {
	// Contended reports whether others are known to want the name. It MUST NOT ask the store.
	Contended(name string) bool
}

// Notifier is a driver that learns of losses by itself.
type Notifier interface {
	// Losses returns the driver's one channel of losses, which Close MUST close, or nil if the driver hears of
	// none as it was opened. The driver MAY drop losses that nobody receives in time: the next renewal of each
	// hold reports its loss again. A loss MAY be told before the grant of its hold is answered, or late, when
	// the owner has been granted the name again: package holdfast then releases that hold too.
	Losses() <-chan Loss
}

// Loss tells that the holds of some owners are gone.
type Loss struct {
	Owners []string
	Err    error // why: ErrBroken, ErrNotHeld, the end of a session
}

// Sharder is a driver over a store of several parts that fail independently.
type Sharder interface {
	// Shard returns the part of the store that keeps the request's name. Package holdfast sends batches to each
	// part separately, so that a dead part delays no other. The answer MAY change from call to call.
	Shard(Request) string
}

// Downgrader is a driver that turns an exclusive hold into a shared one without a gap.
type Downgrader interface {
	// Downgrade makes the hold shared and returns its new grant, whose token MUST NOT be lower than before. It
	// returns ErrNotHeld or ErrBroken if the hold is gone; package holdfast may repeat it after any other
	// error. It MUST be idempotent: a hold that is shared already stays as it is. Package holdfast renews a
	// grant that is HandedOver before it downgrades it, so the store has its token on record.
	Downgrade(context.Context, Grant) (Grant, error)
}

// Watcher is a driver that learns of changes by itself. Without it package holdfast inspects the name once in
// every poll.
type Watcher interface {
	// Watch returns a channel that receives a value after the holders of the name, or their notes, may have
	// changed. It MUST be subscribed before it returns: the channel MUST receive a value for each change that
	// an Inspect which begins after that does not show. Several changes MAY be one value, and there MAY be
	// values without a change. The watch MUST end with the context or with the driver; it MUST then close the
	// channel.
	Watch(ctx context.Context, name string) (<-chan struct{}, error)
}

// Waker is a driver that has no queue, and whose store may tell when a name becomes free. Without it package
// holdfast polls each Caps.Poll at most; with it, it polls each ToldPoll while the store tells.
type Waker interface {
	// Wakes begins to listen for the name to become free. It MUST NOT block, nor ask the store on the caller's
	// goroutine. nil: the store does not tell.
	Wakes(name string) Wakes
}

// Wakes tells one waiter when its name may be free. Its methods are safe for concurrent use.
type Wakes interface {
	// C returns the channel that receives a value when the name may have become free, and whenever Sure has
	// changed. Several occasions MAY be one value, there MAY be values for nothing, and the channel is never
	// closed.
	C() <-chan struct{}
	// Sure reports whether the store tells at present. While Sure is true, C MUST receive a value after the
	// release that follows a refused Try, or after the driver has noticed that the store tells no more. The
	// value MAY be missing if the name opens by time: package holdfast polls.
	Sure() bool
	// Stop ends the listening.
	Stop()
}

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
	Held    time.Duration // since when, by the store's clock, in etcd and ZooKeeper its wait included; 0: the store does not know
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
