package engine

import (
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/core/lease"
)

// Settings are how a name is held. They do not change; callers share them.
type Settings struct {
	driver.Request // what the store is asked for, without the name and the owner
	Pace           lease.Pace
	MaxHold        time.Duration // 0: none
}

// sameTerms reports whether a caller with these settings may take over the place in the store's queue, or the hold,
// of one with the others.
func (s *Settings) sameTerms(other *Settings) bool {
	return s == other || s.Request == other.Request && s.Pace == other.Pace
}

// kind is what all callers of a name must have in common.
func (s *Settings) kind() (semaphore bool, slots int) { return s.Mode == driver.Slot, s.Slots }

// mayHandOver reports whether holds with these settings may be handed over inside the client.
// One that is never renewed may not, because the next holder would have less than its
// TTL, and one with a minimum hold is closed to others after its release.
func (s *Settings) mayHandOver() bool {
	return s.Mode == driver.Exclusive && s.MinHold == 0 && s.Pace.Every >= 0
}

// request is what a driver is asked for.
func (s *Settings) request(name, owner string) driver.Request {
	r := s.Request
	r.Name, r.Owner, r.Tokens = name, owner, 1
	return r
}
