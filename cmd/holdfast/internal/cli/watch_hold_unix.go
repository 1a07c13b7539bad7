//go:build unix

package cli

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

// checkEvery is how often run asks whether its hold is still in a store that does not tell: a break
// is then known within a second. A command that ends sooner costs no question.
const checkEvery = 500 * time.Millisecond

// watchHold returns a channel that is closed when an operator has broken the lease's hold, or the store has
// lost it. Without it run would learn of that by its next renewal: with the default TTL after 10 s.
//
// A store that tells of breaks (driver.Notifier) is asked twice only, if the renewal that the first question
// is succeeds: with it the client of etcd begins to listen. Other stores are read again and again, by the
// holder only.
func (r *runner) watchHold(ctx context.Context, lease *holdfast.Lease) <-chan struct{} {
	gone := make(chan struct{})
	go func() {
		ticker := time.NewTicker(checkEvery)
		defer ticker.Stop()
		tells := r.store.tells
		for asked := 0; !tells || asked < 2; asked++ {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			if tells && asked == 0 {
				tells = r.renew(ctx, lease) == nil // else nobody may listen, as after the time of --max-hold
			} else if !r.stillHeld(ctx, lease) {
				close(gone)
				return
			}
		}
	}()
	return gone
}

// stillHeld asks the store whether it has the hold. It is the renewals' business to notice that the store
// does not answer, so stillHeld then returns true.
func (r *runner) stillHeld(ctx context.Context, lease *holdfast.Lease) bool {
	bounded, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	info, err := r.store.Inspect(bounded, r.name)
	if err != nil || slices.ContainsFunc(info.Holders, func(h driver.Holder) bool { return h.Token == lease.Token() }) {
		return true
	}
	// The renewal says why it is gone. After the time of --max-hold there is none.
	err = r.renew(ctx, lease)
	return !errors.Is(err, holdfast.ErrLost) && !errors.Is(err, holdfast.ErrMaxHold)
}

func (r *runner) renew(ctx context.Context, lease *holdfast.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	return lease.Renew(ctx)
}
