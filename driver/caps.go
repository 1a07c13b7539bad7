package driver

import (
	"fmt"
	"strings"
	"time"
)

// Ops is the set of optional interfaces that a driver supports. A type
// assertion alone does not tell: a wrapper has every method ([Forward]).
type Ops uint

// The optional interfaces.
const (
	OpQueue     Ops = 1 << iota // Queuer
	OpNotify                    // Notifier
	OpShard                     // Sharder
	OpInspect                   // Inspector
	OpBreak                     // Breaker
	OpDowngrade                 // Downgrader
	OpAnnotate                  // Annotator
	OpWatch                     // Watcher
)

// Has reports whether all of ops are in o.
func (o Ops) Has(ops Ops) bool { return o&ops == ops }

// String lists the operations, for example "queue+inspect", or "none".
func (o Ops) String() string {
	names := [...]string{"queue", "notify", "shard", "inspect", "break", "downgrade", "annotate", "watch"}
	var have []string
	for i, name := range names {
		if o.Has(1 << i) {
			have = append(have, name)
		}
	}
	if o>>len(names) != 0 {
		have = append(have, "unknown")
	}
	if have == nil {
		return "none"
	}
	return strings.Join(have, "+")
}

// Caps says what a store can do. It is plain data, the same for the life of
// the driver.
type Caps struct {
	// Store identifies the store itself, equal in every process that uses it
	// and different for different stores. Several locks are taken in the order
	// of (Store, name), so it must not depend on how the store was reached. It
	// holds no secret.
	Store string
	Ops   Ops

	Fencing bool // grants carry tokens that keep P3
	Shared  bool // shared holds
	Slots   bool // semaphores
	Fair    bool // clients have their turns in the order of the store's queue (P8)

	MinTTL, MaxTTL time.Duration // the TTLs that the store takes; 0: no bound

	// Poll is the longest that a waiter goes without asking the store again,
	// whatever wakes it sooner; each poll is jittered down to half of it. A
	// store that queues drops a place after two polls without a sign of life
	// (P7). 0: DefaultPoll.
	Poll time.Duration

	// TokenBlock is the most tokens that one grant can reserve (Request.Tokens). With them
	// an exclusive hold that is released may be handed over to the next who waits in the
	// same process, without the store: under the same owner, each time with the next token
	// (P3), for at most 10 ms (P8). 0 and 1: no such hand-over.
	TokenBlock int

	Guarantees Guarantees
}

// DefaultPoll is the poll of a store that pushes: slow, because a push is
// almost always there first, and bounded, because a push can be lost.
const DefaultPoll = time.Second

// PollInterval returns Poll, or DefaultPoll where that is 0.
func (c Caps) PollInterval() time.Duration {
	if c.Poll > 0 {
		return c.Poll
	}
	return DefaultPoll
}

// Missing lists what need asks for and c does not have, in words; it is empty
// when c has it all. Of need it looks at the operations, the booleans and the
// TTL bounds: a store serves if it takes TTLs at least as short as need.MinTTL
// and at least as long as need.MaxTTL.
func (c Caps) Missing(need Caps) []string {
	var missing []string
	if ops := need.Ops &^ c.Ops; ops != 0 {
		missing = append(missing, "operations "+ops.String())
	}
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
		missing = append(missing, fmt.Sprintf("TTLs down to %v (its shortest is %v)", need.MinTTL, c.MinTTL))
	}
	if need.MaxTTL != 0 && c.MaxTTL != 0 && c.MaxTTL < need.MaxTTL {
		missing = append(missing, fmt.Sprintf("TTLs up to %v (its longest is %v)", need.MaxTTL, c.MaxTTL))
	}
	return missing
}
