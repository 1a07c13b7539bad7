package driver

import (
	"fmt"
	"time"
)

// Caps says what a store can do. It MUST stay the same for the life of the driver.
type Caps struct {
	// Store identifies the store. It MUST be equal in every process that uses the store, different for
	// different stores, and independent of how the store was reached, because several locks are taken in the
	// order of (Store, name). It MUST NOT hold a secret.
	Store string

	Fencing bool // grants carry tokens that keep P3
	Shared  bool // shared holds
	Slots   bool // semaphores
	Fair    bool // clients are served in the order of the store's queue (P8)

	// NoNotes says that the store has no room for Request.Note. Package holdfast then refuses notes that the
	// user gives, and the driver ignores the default one.
	NoNotes bool

	MinTTL, MaxTTL time.Duration // the TTLs that the store takes; 0: no bound

	// Poll is the longest time for which a waiter does not ask the store again, whatever wakes it sooner.
	// Package holdfast jitters each poll down to half of it. A store that queues drops a place after two polls
	// in which it was not confirmed (P7); see ConfirmEvery for those far behind. 0: DefaultPoll.
	Poll time.Duration

	// Recalls says that the store tells a waiter to confirm its place once fewer than FarBehind places are ahead of
	// it, and drops the place two polls later if the waiter has not. See ConfirmEvery.
	Recalls bool

	// TokenBlock is the most tokens that one grant can reserve (Request.Tokens). A client may hand an exclusive
	// hold over to another of its own goroutines without the store: under the same owner, each time with the
	// next token of its block (P3), for at most 10 ms. If Grant.Contended, it hands over for at most
	// 2 ms, and only to those who waited at the grant (P8). 0 and 1: no such hand-over.
	TokenBlock int

	Guarantees Guarantees
}

// DefaultPoll is the poll of a store that pushes. It is long, because a push almost always comes first, and
// bounded, because a push can be lost.
const DefaultPoll = time.Second

// ToldPoll is the poll of a store without a queue that tells when a name is free (Waker), while it tells. It is
// far longer, because the loss of a connection wakes the waiters too: it finds only releases of which nobody tells.
const ToldPoll = 8 * time.Second

// PollInterval returns Poll, or DefaultPoll if that is 0.
func (c Caps) PollInterval() time.Duration {
	if c.Poll > 0 {
		return c.Poll
	}
	return DefaultPoll
}

// FarBehind is how many places are ahead of one that is confirmed less often.
const FarBehind = 128

// MostPolls bounds ConfirmEvery.
const MostPolls = 8

// ConfirmEvery returns how often a waiter confirms its place in the store's queue, by another Enqueue, if so
// many places are ahead of it: at each poll, and far behind at each one and a half, because the signs of life of a
// thousand waiters are most of what the store has to do. They cannot be much rarer: a hundred clients that were killed
// together may delay a live one behind them by three polls at most (P7). If the store recalls waiters that are far
// behind, these confirm their places once in a poll for each FarBehind that are ahead, but in MostPolls at the latest.
func (c Caps) ConfirmEvery(ahead int) time.Duration {
	poll := c.PollInterval()
	switch {
	case ahead < FarBehind:
		return poll
	case !c.Recalls:
		return poll * 3 / 2
	}
	return max(poll*3/2, poll*time.Duration(min(ahead, MostPolls*FarBehind))/FarBehind)
}

// PlaceLife returns for how long a place lasts from its confirmation on, unless it is confirmed again: one poll
// longer than until that is due.
func (c Caps) PlaceLife(ahead int) time.Duration { return c.ConfirmEvery(ahead) + c.PollInterval() }

// Missing lists, in words, what need asks for and c lacks; it is empty if c has everything. Of need it checks
// the booleans but NoNotes, and the TTL bounds: a store qualifies if it takes TTLs at least as short as
// need.MinTTL and at least as long as need.MaxTTL.
func (c Caps) Missing(need Caps) []string {
	var missing []string
	for _, b := range []struct {
		name       string
		need, have bool
	}{
		{"fencing tokens", need.Fencing, c.Fencing},
		{"shared locks", need.Shared, c.Shared},
		{"semaphores", need.Slots, c.Slots},
		{"fairness between clients", need.Fair, c.Fair},
	} {
		if b.need && !b.have {
			missing = append(missing, b.name)
		}
	}
	if need.MinTTL != 0 && c.MinTTL > need.MinTTL {
		missing = append(missing,
			fmt.Sprintf("TTLs down to %v (its shortest is %v)", need.MinTTL, c.MinTTL))
	}
	if need.MaxTTL != 0 && c.MaxTTL != 0 && c.MaxTTL < need.MaxTTL {
		missing = append(missing,
			fmt.Sprintf("TTLs up to %v (its longest is %v)", need.MaxTTL, c.MaxTTL))
	}
	return missing
}
