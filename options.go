package holdfast

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"
	"unicode/utf8"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/core/engine"
	"github.com/holdfastlock/holdfast/internal/core/lease"
	"github.com/holdfastlock/holdfast/internal/hostnote"
)

// ClientOptions configure a client. The zero value means the defaults.
type ClientOptions struct {
	// Prefix is put in front of every name in the store, to keep apart programs that share a store:
	// with "billing/" the store's name for "orders" is "billing/orders". No slash is added. The
	// client's methods take and return names without the prefix.
	Prefix string
	// Need lists capabilities without which New fails: each boolean that is true,
	// and the TTL range, which the store must cover.
	Need Caps
	// TTL is the TTL of locks whose Options.TTL is 0. It must be one that the store takes. 0:
	// DefaultTTL, or the nearest that the store takes. In the URL of Open it is hf.ttl, for example
	// hf.ttl=10s.
	TTL time.Duration
	// Events are hooks that are told what happens to locks.
	Events Events
	// Trace, if it is not nil, is called on the goroutine of each Acquire and TryAcquire (also those of
	// Do and All) before the store is asked, with the caller's context. It returns the context under
	// which the acquire goes on, made from the one that it got, and a function that is called once on
	// the same goroutine when the acquire ends, before it returns; nil: none. The context comes back
	// as Event.Context in the events of this acquire and of its hold: so spans of a tracer find each
	// other. Acquires that are refused for bad input, or because their context has ended before, are
	// not traced.
	//
	// Unlike Events it delays the lock, so it must be quick. If it panics the panic is logged, and the
	// acquire goes on without it. Module otelhold uses it.
	Trace func(ctx context.Context, a Attempt) (context.Context, func(Outcome))
	// Logger gets the same events as log records, on the goroutine that calls the hooks. Nil: no
	// records, and slog.Default gets the panics of hooks.
	Logger *slog.Logger
	// Margin is how long before the end of the store's TTL a lease stops being trusted. It must
	// cover how far the rates of the clocks drift apart in one TTL, and the time between a check of
	// the lease and the act that follows. 0: a fiftieth of the TTL, at least 5 ms.
	Margin time.Duration
	// Clock is the clock by which leases are trusted; the driver must use the same. Nil: the
	// host's, which counts the time for which the host is suspended.
	Clock driver.Clock
}

// Options say how a lock is taken. They are plain data; the zero value of each field is its
// default. TTL and MaxHold go up to MaxTTL, LockDelay and MinHold up to MaxDelay.
type Options struct {
	// TTL is how long the store keeps the lock after the holder has vanished: so long a crash
	// blocks the name at most. 0: ClientOptions.TTL.
	TTL time.Duration
	// RenewEvery is how often the lease is renewed. It must be at least MinRenewEvery, and shorter
	// than the TTL less the margin (ClientOptions.Margin). 0: a third of the TTL. Negative: never;
	// the lease then ends at its TTL.
	RenewEvery time.Duration
	// LockDelay is how much longer than its TTL the store keeps the name of a vanished holder
	// closed, so that what the holder had under way can end. A release frees the name at once.
	// 0: none.
	LockDelay time.Duration
	// MaxHold is how long the lease is renewed, counted from its acquire: a section that hangs must
	// not keep its lock for ever. When it is over Events.Expiring is called, Lease.Renew returns
	// ErrMaxHold, and the trust deadline stands, even if a renewal that is under way succeeds.
	// Unless the lease is released before that deadline, it is lost then, by ErrMaxHold. So a hold
	// ends at most MaxHold and one TTL after it was taken. With a MaxHold shorter than RenewEvery a
	// full TTL is never renewed. 0: no limit.
	MaxHold time.Duration
	// MinHold keeps the name closed for at least this long after it was acquired, even if the lock
	// is released sooner (but see Lease.ReleaseNow) or the holder crashes. It is for jobs that must
	// run once per tick on hosts whose clocks differ. An acquire that fails does not close the
	// name, unless the store is out of reach for the whole TTL after it: then the store cannot tell
	// the acquire from a crash. 0: none.
	MinHold time.Duration
	// Reentrant joins the hold that the context carries instead of failing with ErrDeadlock. The
	// hold stays as it was taken: the other options here do not change it.
	Reentrant bool
	// Unfair allows barging: the lock may be taken before others who wait in the store's queue, if
	// the name happens to be free.
	Unfair bool
	// Permits is how many slots of a semaphore one hold takes; 0 means 1. With any other lock it
	// must be 0.
	Permits int
	// Note is shown to operators. It has up to MaxNote bytes of UTF-8. "": program, host and
	// process id, unless Caps.NoNotes: then any other is refused.
	Note string
}

// Limits of options.
const (
	DefaultTTL    = 30 * time.Second
	MaxTTL        = 365 * 24 * time.Hour
	MaxDelay      = 24 * time.Hour       // of LockDelay and MinHold
	MinRenewEvery = 5 * time.Millisecond // unless it is negative
	MaxSlots      = 1 << 20              // of a semaphore
	MaxNote       = 256                  // bytes
)

// settings are checked options for one mode and size in one client, with the defaults filled in.
// Locks with the same settings share them.
type settings struct {
	client *Client
	engine.Settings
	reentrant bool
	err       error // what is wrong with them, or with the one name that they belong to
}

// settle fills in the defaults and checks the options against the rules and the store (P10).
func settle(o settingsKey, caps *Caps, c *ClientOptions) (*settings, error) {
	s := &settings{
		Settings: engine.Settings{
			Request: driver.Request{
				Mode: o.mode, Slots: o.slots, RW: o.rw, Permits: o.Permits, TTL: o.TTL,
				LockDelay: o.LockDelay, MinHold: o.MinHold, Unfair: o.Unfair, Note: o.Note,
			},
			Pace: lease.Pace{Every: o.RenewEvery, Margin: c.Margin}, MaxHold: o.MaxHold,
		},
		reentrant: o.Reentrant,
	}
	if err := s.settleKind(caps); err != nil {
		return s, err
	}
	if s.TTL == 0 {
		s.TTL = c.TTL
	}
	if s.TTL == 0 {
		s.TTL = max(DefaultTTL, caps.MinTTL)
		if caps.MaxTTL > 0 {
			s.TTL = min(s.TTL, caps.MaxTTL)
		}
	}
	if s.Pace.TTL = s.TTL; s.Pace.Every == 0 {
		// Two more attempts fit before the deadline, unless the margin is large.
		s.Pace.Every = max(min(s.TTL/3, (s.TTL-s.margin())/2), MinRenewEvery)
	}
	if s.Note == "" {
		s.Note = defaultNote
	}
	return s, s.check(caps)
}

// margin is how long before the TTL the lease stops being trusted.
func (s *settings) margin() time.Duration { return lease.Margin(s.Pace.Margin, s.TTL) }

func (s *settings) settleKind(caps *Caps) error {
	switch {
	case s.Mode == Slot && !caps.Slots:
		return fmt.Errorf("semaphores: %w", ErrUnsupported)
	case s.Mode == Shared && !caps.Shared:
		return fmt.Errorf("shared locks: %w", ErrUnsupported)
	case s.Note != "" && caps.NoNotes:
		return fmt.Errorf("option Note: %w", ErrUnsupported)
	case s.Mode != Slot && s.Permits != 0:
		return fmt.Errorf("option Permits is %d: only a semaphore has permits", s.Permits)
	case s.Mode != Slot:
		return nil
	case s.Slots < 1 || s.Slots > MaxSlots:
		return fmt.Errorf("a semaphore with %d slots: 1 to %d are allowed", s.Slots, MaxSlots)
	case s.Permits < 0 || s.Permits > s.Slots:
		return fmt.Errorf("option Permits is %d: 1 to %d, the semaphore's slots, are allowed",
			s.Permits, s.Slots)
	}
	if s.Permits == 0 {
		s.Permits = 1
	}
	return nil
}

func (s *settings) check(caps *Caps) error {
	trusted, every := s.TTL-s.margin(), s.Pace.Every
	switch {
	case s.TTL < 0:
		return fmt.Errorf("option TTL is %v: it must be positive", s.TTL)
	case s.TTL < caps.MinTTL:
		return fmt.Errorf("option TTL is %v: this store's shortest is %v", s.TTL, caps.MinTTL)
	case caps.MaxTTL > 0 && s.TTL > caps.MaxTTL:
		return fmt.Errorf("option TTL is %v: this store's longest is %v", s.TTL, caps.MaxTTL)
	case s.TTL > MaxTTL:
		return fmt.Errorf("option TTL is %v: at most %v is allowed", s.TTL, MaxTTL)
	case trusted <= 0:
		return fmt.Errorf("option TTL is %v: it must be longer than the margin of %v", s.TTL, s.margin())
	case every >= 0 && trusted <= MinRenewEvery:
		return fmt.Errorf("option TTL is %v: "+
			"to be renewed it must be longer than margin and %v, %v together",
			s.TTL, MinRenewEvery, s.margin()+MinRenewEvery)
	case every >= 0 && every < MinRenewEvery:
		return fmt.Errorf("option RenewEvery is %v: it must be at least %v; negative means never",
			every, MinRenewEvery)
	case every >= trusted:
		return fmt.Errorf("option RenewEvery is %v: "+
			"it must be shorter than TTL less margin, %v; negative means never",
			every, trusted)
	case s.LockDelay < 0 || s.LockDelay > MaxDelay:
		return fmt.Errorf("option LockDelay is %v: 0 to %v is allowed", s.LockDelay, MaxDelay)
	case s.MaxHold < 0 || s.MaxHold > MaxTTL:
		return fmt.Errorf("option MaxHold is %v: 0 to %v is allowed", s.MaxHold, MaxTTL)
	case s.MinHold < 0 || s.MinHold > MaxDelay:
		return fmt.Errorf("option MinHold is %v: 0 to %v is allowed", s.MinHold, MaxDelay)
	case len(s.Note) > MaxNote:
		return fmt.Errorf("option Note has %d bytes: at most %d are allowed", len(s.Note), MaxNote)
	case !utf8.ValidString(s.Note):
		return errors.New("option Note has text that is not valid UTF-8")
	}
	return nil
}

// settingsKey is the arguments from which settings are made.
type settingsKey struct {
	Options
	mode  Mode
	slots int
	rw    bool // of a read-write lock
}

// defaultNote tells an operator where to find the holder.
var defaultNote = hostnote.Of(os.Args[0], MaxNote)
