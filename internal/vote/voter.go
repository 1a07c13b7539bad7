package vote

import (
	"context"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Voter is a driver over one server that may lose its memory when it restarts, and says whether it may
// have. So it can be a node of a quorum (package quorum), where a vote that a node has
// forgotten must not be given to another. A driver over several servers, of which another may take over
// with older data, MUST lack it (driver.As).
type Voter interface {
	// Vote is Try, and reports whether the hold was taken in this life of the store, and no client has told the
	// store of a longer TTL than Life has returned. If it reports false, Life may have news.
	Vote(ctx context.Context, r driver.Request, life Life) (g driver.Grant, same bool, err error)
	// Life tells the store the longest TTL of this client, and returns the present life of the store, whether it
	// was admitted, and the longest TTL that a client has told the store. It begins a life if the store has
	// none: every start of a server MUST have a life of its own, whatever the server stores.
	Life(ctx context.Context, longest time.Duration) (life Life, admitted bool, all time.Duration, err error)
	// Admit notes in the store, for all clients, that nothing is trusted any more which it may have
	// forgotten before this life. It MUST do nothing, and return an error, in another life.
	Admit(ctx context.Context, life Life) error
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
