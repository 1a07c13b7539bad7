// Package driver is the seam between Holdfast's portable part and the stores
// in which locks live.
//
// A driver is small on purpose: it takes, renews and releases holds in one
// store, once and without waiting. Everything that is hard and the same for
// every store — renewing in time, trust deadlines, the queue inside the
// process, retries, re-entry, causes and events — stands once, above this
// seam, in package holdfast. What a store can do beyond the core is an
// optional interface, announced in [Caps.Ops].
//
// Users of locks do not import this package; they import a driver's package
// for its URL scheme and package holdfast for the rest. The guide for authors
// is docs/writing-a-driver.md, the check of a driver is package drivertest.
package driver

import (
	"context"
	"time"
)

// Mode is the way in which a hold takes its name.
type Mode uint8

// The modes. Exclusive and Shared belong to one kind, the read-write lock: a
// mutex is its exclusive half. Slot is a kind of its own, the semaphore.
const (
	Exclusive Mode = iota // alone
	Shared                // together with other shared holds
	Slot                  // Permits of the semaphore's Slots
)

// String returns "exclusive", "shared" or "slot".
func (m Mode) String() string {
	switch m {
	case Exclusive:
		return "exclusive"
	case Shared:
		return "shared"
	case Slot:
		return "slot"
	}
	return "unknown mode"
}

// Token is a fencing token. It grows with every new hold on a name and stays
// the same over renewals; 0 means that the store gives none. Values stay below
// 1<<53, so that they survive JSON and Lua numbers.
type Token int64

// Request asks for one hold. Package holdfast has checked every field against
// the rules and the driver's [Caps] before a driver sees it (P10).
type Request struct {
	Name      string        // what is locked, with the client's prefix
	Owner     string        // unguessable, unique for each hold; chosen by the client
	Mode      Mode          // how
	Slots     int           // Slot: the size of the semaphore; else 0
	Permits   int           // Slot: how many of its slots this hold takes; else 0
	TTL       time.Duration // how long the store keeps the hold unrenewed
	LockDelay time.Duration // how much longer a vanished hold keeps the name closed
	MinHold   time.Duration // if the hold ends sooner than this after the grant, the name stays closed until then
	Unfair    bool          // may take a free name although others are queued (barging)
	Note      string        // shown to operators

	// Tokens is how many tokens to reserve for the hold, its own and those above it: 1, or
	// Caps.TokenBlock if others in the same process wait for the name. 0 counts as 1.
	Tokens int
	// RW says that the lock is a half of a read-write lock (Client.RWMutex), not a mutex.
	// Layouts of other programs keep the two apart; where both are one lock, a driver
	// ignores it.
	RW bool
}

// Grant is a hold as the store gave it. Drivers get it back, unchanged but for
// MinHold (0 when the hold is undone rather than released), Stray, and Token with
// Passed, to renew, release and downgrade.
type Grant struct {
	Request
	Token Token         // 0: the store gives none, or the outcome is not known
	Since Instant       // provably not after the store started the TTL now running
	Valid time.Duration // the TTL that the store granted, counted from Since
	// Block is how many tokens, Token the first of them, are the hold's: no other hold on
	// the name has one of them. It is at most Request.Tokens. 0 counts as 1.
	Block int
	// Contended says that others were in the store's queue when the hold was granted.
	Contended bool
	// Stray says that a request of this owner got no answer and may still be on
	// its way, although a later one was granted. The client sets it.
	Stray bool
	// Passed says that the hold was handed over inside the process, under the next
	// token of its block, since the store was last told: the store has a lower token
	// on record, until Renew or Release. The client sets it.
	Passed bool
	// Handle is the driver's own. It must be comparable with ==, and small:
	// it is kept as long as the hold.
	Handle any
}

// Renewal is the outcome of renewing one grant: a new Since and Valid, which
// replace the old ones even where they end sooner, or an error. ErrNotHeld and ErrBroken say that the hold is gone for good; any other
// error is a passing one and the hold is renewed again while it is trusted.
type Renewal struct {
	Since Instant
	Valid time.Duration
	Err   error
}

// Driver keeps locks in one store. All methods are safe for concurrent use and
// return raw errors of the store, joined with this package's sentinels where
// the comment says so; package holdfast adds names and context.
type Driver interface {
	// Caps says what the store can do. It does no I/O and always returns the
	// same value.
	Caps() Caps

	// Try takes the hold if the name is free for it, and does not wait.
	//
	// It returns ErrHeld, best as a *HeldError, when the name is taken, closed
	// or (unless Unfair) has waiters that come first; ErrMismatch when the name
	// is in use as another kind or with other slots. When the outcome is not
	// known — the reply was lost, the context ended in flight — it returns an
	// error that is ErrUncertain; a Handle in the Grant beside it is given back when
	// the request is withdrawn, as is one beside ErrHeld of Enqueue. Any other error
	// says that the store has certainly not done it.
	//
	// A driver does not repeat a Try by itself where the first may have been
	// refused and the second granted: nobody would know of that hold. The context may
	// have no deadline; a driver bounds each request by a time of its own.
	Try(context.Context, Request) (Grant, error)

	// Renew starts the TTL of each grant again, in one round trip where the
	// store can, and returns as many renewals in the same order. It must check
	// the owner, and must not revive a hold that has expired. The most urgent grants
	// come first. Batches of grants that are more urgent or less so may be under
	// way at the same time. Since is the instant before the request was sent. Of a grant that was Passed the store
	// takes the token over, unless it has a higher one on record. The rest of its block stays
	// reserved.
	Renew(context.Context, []Grant) []Renewal

	// Release frees each grant if its owner still has it, and returns as many
	// errors in the same order. It also withdraws a request that is queued or
	// whose outcome is unknown (Token 0). Nil means that the store holds
	// nothing for this owner and, of a grant with Token 0 or Stray, that no request
	// of this owner can take effect later either: the store remembers the owner
	// for a while, and refuses. ErrNotHeld means the same, where the store can tell that
	// the hold had gone before; ErrBroken, that an operator had broken it. Any
	// other error is a passing one and the release is repeated.
	//
	// The grant's Token is the last one that was used of its Block: later tokens of the
	// name need only be higher than that. Of a hold that ends in another way, all of the
	// block counts as used.
	Release(context.Context, []Grant) []error

	// Close ends the driver's connections. Package holdfast has released what it
	// held before; what is held all the same has vanished, and ends with its TTL
	// or, in a store that can tell, at once.
	Close() error
}

// Queuer is a driver whose store queues waiters itself (OpQueue).
type Queuer interface {
	// Enqueue takes, confirms or collects the owner's place in the name's
	// queue; it is idempotent by Owner. It returns the grant if the hold is
	// the owner's, now or already, and ErrHeld if the owner is queued. Other
	// errors are those of Try; after ErrUncertain the caller either asks again
	// with the same owner or withdraws.
	//
	// A place that is not confirmed for two polls (Caps.Poll) may be dropped;
	// the next Enqueue then takes a new one at the end.
	Enqueue(context.Context, Request) (Grant, error)

	// Wait blocks, on the caller's goroutine, until the queued owner is granted
	// the hold (the grant) or it is worth asking again by Enqueue (ErrHeld). Wake-ups may be
	// spurious, and may be missed: the context ends one poll later. A Wait that
	// ends without a grant leaves the place as it is.
	//
	// A hold that the store handed over while the client waited is a claim: it
	// is at most two polls long, and its Since is the sending of the last
	// request of this owner that the store answered before granting.
	Wait(context.Context, Request) (Grant, error)
}

// Foreseer is a Queuer that may know, without asking the store, that others want
// a name: whoever is ready to wait for it then queues at once, without a Try that
// is likely to be refused. A wrong guess costs a little time only.
type Foreseer interface {
	Contended(name string) bool
}

// Notifier is a driver that learns of losses by itself (OpNotify).
type Notifier interface {
	// Losses returns the driver's one channel, closed by Close. Losses that
	// nobody receives in time may be dropped: each renewal tells them again.
	Losses() <-chan Loss
}

// Loss tells that the holds of some owners are gone.
type Loss struct {
	Owners []string
	Err    error // why: ErrBroken, ErrNotHeld, the end of a session
}

// Sharder is a driver over a store of several parts that fail independently
// (OpShard).
type Sharder interface {
	// Shard names the part that keeps the request's name. Each has batches of its
	// own, so that a dead one delays no other. The answer may change from call to
	// call.
	Shard(Request) string
}

// Downgrader is a driver that turns an exclusive hold into a shared one
// without a gap (OpDowngrade).
type Downgrader interface {
	// Downgrade returns the grant in its new form, with a token that is not
	// lower than before, or ErrNotHeld, ErrBroken or a passing error. It is
	// idempotent: a hold that is shared already stays as it is.
	Downgrade(context.Context, Grant) (Grant, error)
}
