package vote

import (
	"context"

	"github.com/holdfastlock/holdfast/driver"
)

// Keeper is a driver that can tell whether its store forgets anything, so that a node of a quorum that is said to be
// durable is checked.
type Keeper interface {
	// Durable reports whether the store keeps on disk all that it acknowledges, before it does: false only if it is
	// known not to.
	Durable(ctx context.Context) (bool, error)
}

// Raiser is a driver that can give a hold a token which another store has chosen, so that it can
// be a node of a quorum with fencing tokens (package quorum).
type Raiser interface {
	// Raise is Renew, and gives each hold the token of its grant, whatever it had before: the driver's own, or
	// one of an earlier Raise. With Token 0 a hold keeps what it has. Inspect and Break MUST go by that token
	// then. The next hold on the name MUST get a higher token than that, and than all others that the store has
	// given. The Grant of a release has the token of the last Raise that was sent, and no Handle after a Raise.
	Raise(context.Context, []driver.Grant) []driver.Renewal
}
