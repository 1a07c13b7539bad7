// Package driver is the seam between Holdfast's portable part and the stores in which locks live.
//
// A driver is small: it takes, renews and releases holds in one store. Each call is one attempt and does not
// wait for a held lock. Package holdfast, above the seam, does what is the same for every store: it renews in
// time, computes trust deadlines, queues the goroutines of a process, retries, re-enters, and reports causes
// and events. What a store can do beyond the core is an optional interface, found by [As].
//
// Users of locks need a driver's package and package holdfast, not this one. docs/writing-a-driver.md is the
// guide for authors of drivers, and package drivertest checks a driver. In the contracts here MUST, MUST NOT
// and MAY bind the driver, unless a sentence names package holdfast.
package driver

import (
	"context"
	"time"

	"github.com/holdfastlock/holdfast/internal/hostclock"
)

// Mode says how a hold takes its name.
type Mode uint8

// The modes. Exclusive and Shared belong to one kind, the read-write lock: a mutex is its exclusive half. Slot
// is a kind of its own, the semaphore.
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

// Token is a fencing token. It grows with every new hold on a name and stays the same over renewals. 0 means
// that the store gives none. A token is below 1<<53, so that it survives JSON and Lua numbers.
type Token int64

// Request asks for one hold. Package holdfast has checked every field against the rules and the driver's [Caps]
// before a driver sees it (P10).
type Request struct {
	Name      string        // what is locked, with the client's prefix
	Owner     string        // unguessable, unique for each hold; chosen by the client
	Mode      Mode          // how the name is held
	Slots     int           // Slot: the size of the semaphore; else 0
	Permits   int           // Slot: how many of its slots this hold takes; else 0
	TTL       time.Duration // how long the store keeps the hold unrenewed
	LockDelay time.Duration // how much longer a vanished hold keeps the name closed
	MinHold   time.Duration // how long after the grant the name stays closed at least
	Unfair    bool          // may take a free name although others are queued (barging)
	Note      string        // shown to operators

	// Tokens is how many tokens the store reserves for the hold, its own included: 1, or Caps.TokenBlock if
	// others in the same process wait for the name. 0 counts as 1. A driver MAY reserve fewer: see Grant.Block.
	Tokens int
	// RW says that the lock is one half of a read-write lock (Client.RWMutex), not a mutex. A driver whose
	// layout keeps the two apart MUST obey it; other drivers ignore it.
	RW bool
}

// Grant is a hold as the store granted it. Package holdfast gives it back to the driver to renew, to release
// and to downgrade the hold. It then differs from what the driver returned in these fields only: Mode, if it
// was changed since; MinHold, which is 0 if the acquire is undone rather than released; Tokens, Claim and
// Contended, which say nothing any more; Stray; HandedOver, and with it Token.
type Grant struct {
	Request
	Token Token   // 0: the store gives none, or the outcome is not known
	Since Instant // provably not after the store started the TTL now running
	// Valid is for how long the hold is good, counted from Since. It MAY be less than the TTL, as where the
	// store grants no longer one: package holdfast renews in time for it.
	Valid time.Duration
	// Claim says that the hold is a claim: see Queuer. Package holdfast renews one that is shorter than the TTL
	// even if the holder wants no renewals, and one with a minimum hold before it is used.
	Claim bool
	// Block is how many tokens belong to the hold; Token is the first. It MUST be at most Request.Tokens. 0
	// counts as 1. The store MUST NOT give one of them to another hold on the name, except those that Release
	// gives back.
	Block int
	// Contended says that others were in the store's queue when the hold was granted.
	Contended bool
	// Stray says that an earlier request of this owner got no answer and may still be on its way, although a
	// later one was granted. Package holdfast sets it.
	Stray bool
	// HandedOver says that the hold was handed over inside the process, under a later token of its block, since
	// the store was last told: until Renew or Release the store has a lower token on record. Package holdfast
	// sets it.
	HandedOver bool
	// Degraded says that the hold is in a second store, because the first is silent (package fallback). Its
	// Token is 0. A driver of one store leaves it false.
	Degraded bool
	// Handle is the driver's own. It MUST be comparable with ==. It is kept as long as the hold, so it should
	// be small.
	Handle any
}

// Renewal is the outcome of renewing one grant: an error, or a new Since and Valid, which replace the old ones
// even where they end sooner. ErrNotHeld and ErrBroken say that the hold is gone for good. After any other
// error package holdfast renews again while the hold is trusted.
type Renewal struct {
	Since Instant
	Valid time.Duration
	Err   error
}

// Driver keeps locks in one store. All methods MUST be safe for concurrent use. They return the store's raw
// errors, joined with this package's errors where the comment says so; package holdfast adds the operation and
// the name.
type Driver interface {
	// Caps returns what the store can do. It MUST NOT do I/O and MUST always return the same value.
	Caps() Caps

	// Try takes the hold if the name is free for it, and does not wait.
	//
	// It MUST return ErrHeld, if possible as a *HeldError, when the name is taken or closed, or when waiters
	// come first (unless Request.Unfair). It MUST return ErrMismatch when the name is in use as another kind or
	// with other slots, where the store can tell, and say both numbers: see [Mismatch]. It MUST return an error
	// that is ErrUncertain when the outcome is not known because the reply was lost or the context ended in
	// flight. Any other error says that the store has certainly not granted the hold.
	//
	// A Grant beside ErrUncertain, and one beside ErrHeld of Enqueue, MAY have a Handle: package holdfast gives
	// it back when it withdraws the request.
	//
	// The driver MUST NOT repeat a Try by itself if one attempt may be refused and the other be granted: nobody
	// would know of that hold.
	//
	// The context may have no deadline, so the driver MUST bound each request by a time of its own.
	Try(context.Context, Request) (Grant, error)

	// Renew starts the TTL of each grant again and returns one renewal for each, in the same order. The most
	// urgent grants come first. It should take one round trip: all that are due come together. Batches of
	// different urgency may be under way at the same time.
	//
	// It MUST check the owner, and MUST NOT revive a hold that has expired. Since MUST be an instant before the
	// request was sent. If a grant is HandedOver, the store MUST record its token, unless it has a higher one
	// on record. The rest of the block MUST stay reserved.
	Renew(context.Context, []Grant) []Renewal

	// Release frees each grant that its owner still has, and returns one error for each, in the same order. It
	// also withdraws a request that is queued or whose outcome is unknown (Token 0).
	//
	// Nil means that the store holds nothing for this owner. For a grant with Token 0 or Stray, nil also means
	// that no earlier request of this owner can take effect any more: the store MUST remember the owner for a
	// while and refuse such a request. ErrNotHeld means the same as nil, and that the hold had gone before,
	// where the store can tell; ErrBroken, that an operator had broken it. After any other error package
	// holdfast repeats the release.
	//
	// Grant.Token is the last token of the Block that was used: the next hold's token MUST be higher than it,
	// and need not be higher than the rest of the block. When a hold ends in any other way, all of its block
	// counts as used.
	Release(context.Context, []Grant) []error

	// Close ends the driver's connections. Package holdfast has released its holds before. A hold that is left
	// all the same counts as vanished: it ends with its TTL, or at once in a store that can tell.
	Close() error
}

// Instant is a point in time, in nanoseconds, on a clock of this host that nobody can set and that counts the
// time for which the host was suspended. Its zero point means nothing: do not compare instants of different
// hosts or of different boots.
type Instant int64

// Add returns the instant d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns the time from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// Clock tells the local time by which leases are trusted. A driver and the client above it MUST use the same
// one.
type Clock interface {
	// Now returns the present instant. It MUST NOT go back, and MUST be safe for concurrent use.
	Now() Instant
}

// HostClock is the clock of the host: see package hostclock.
var HostClock Clock = hostClock{}

type hostClock struct{}

func (hostClock) Now() Instant { return Instant(hostclock.Now()) }
