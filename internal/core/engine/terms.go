package engine

import (
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/core/lease"
)

// Terms are how a name is held. A caller takes over another's place in the store's queue,
// its hold, or a part of its shared hold only if their terms are equal.
type Terms struct {
	Mode                    driver.Mode
	Unfair, RW              bool
	Slots, Permits          int
	TTL, LockDelay, MinHold time.Duration
	RenewEvery              time.Duration // negative: never
	Note                    string
}

// kind is what all callers of a name must have in common.
func (t *Terms) kind() (semaphore bool, slots int) { return t.Mode == driver.Slot, t.Slots }

// mayHandOver reports whether holds on such terms may be handed over inside the client.
// One that is never renewed may not, because the next holder would have less than its
// TTL, and one with a minimum hold is closed to others after its release.
func (t *Terms) mayHandOver() bool {
	return t.Mode == driver.Exclusive && t.MinHold == 0 && t.RenewEvery >= 0
}

// Settings are terms with what only the client needs to know. They do not change; callers
// share them.
type Settings struct {
	Terms
	MaxHold time.Duration // 0: none
	Pace    lease.Pace
}

// request is what a driver is asked for on these terms.
func (t *Terms) request(name, owner string) driver.Request {
	return driver.Request{
		Name: name, Owner: owner,
		Mode: t.Mode, Slots: t.Slots, Permits: t.Permits,
		TTL: t.TTL, LockDelay: t.LockDelay, MinHold: t.MinHold,
		Unfair: t.Unfair, RW: t.RW, Note: t.Note, Tokens: 1,
	}
}
