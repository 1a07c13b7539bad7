package engine

import (
	"fmt"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/core/batch"
)

// withdrawal is something that the store is to forget: an acquire that nobody waits for any
// more, or a release that it has not confirmed. It is repeated in the background until the
// store confirms it, or has forgotten it by itself because its TTL is over (P6).
type withdrawal struct {
	grant driver.Grant
	until driver.Instant
	pause time.Duration
	entry batch.Entry
}

// slowestWithdrawal is the longest pause between two attempts.
const slowestWithdrawal = time.Second

// MaxWithdrawals is how many withdrawals may await a store that does not answer. With as
// many an acquire of which the store knows nothing fails, rather than leave one more
// behind.
const MaxWithdrawals = 1 << 14

// withdrawalRules are how withdrawals share batches.
var withdrawalRules = batch.Rules[*withdrawal]{
	Entry:   func(w *withdrawal) *batch.Entry { return &w.entry },
	Slack:   func(w *withdrawal) time.Duration { return w.pause / 4 },                     // many are repeated together
	Left:    func(*withdrawal, driver.Instant) time.Duration { return 2 * ReleaseWithin }, // nobody waits for them
	Longest: ReleaseWithin,
}

// withdraw begins a withdrawal.
func (e *Engine) withdraw(g driver.Grant) {
	e.open++
	e.withdrawn.Set(&withdrawal{grant: g, until: e.now.Add(g.TTL), pause: FirstPause}, e.now)
}

// withdrawPlace withdraws a gate's place, if the store may know it. An undone acquire has no
// minimum hold.
func (e *Engine) withdrawPlace(name string, p place) {
	if !p.sent {
		return
	}
	r := p.terms.request(e.Prefix+name, p.owner)
	r.MinHold = 0
	e.withdraw(driver.Grant{Request: r, Stray: p.stray, Handle: p.handle})
}

// overloaded returns why no acquire may begin that might have to be withdrawn, or nil: too
// many withdrawals await a store that does not answer (P6, P9). The error does not wrap the
// store's, which speaks of another operation.
func (e *Engine) overloaded() error {
	if e.open < MaxWithdrawals || e.silence == nil {
		return nil
	}
	return fmt.Errorf("%d acquires and releases await the store's confirmation: %v", e.open, e.silence)
}

// sendWithdrawals sends off a batch.
func (e *Engine) sendWithdrawals(withdrawals batch.Batch[*withdrawal]) {
	b := &Batch{withdrawals: withdrawals, Within: withdrawals.Within}
	for _, w := range withdrawals.Items {
		b.Grants = append(b.Grants, w.grant)
	}
	e.effect(Effect{Kind: Withdraw, Batch: b})
}

// batchWithdrawn takes in the outcomes of a batch.
func (e *Engine) batchWithdrawn(b *Batch, errs []error) {
	for i, w := range b.withdrawals.Items {
		err := errs[i]
		if err == nil || driver.Gone(err) {
			e.silence = nil
			e.open--
			continue
		}
		e.silence = err
		if e.now >= w.until {
			e.open--
			continue
		}
		e.withdrawn.Set(w, e.now.Add(e.Jitter(w.pause)))
		w.pause = min(2*w.pause, slowestWithdrawal)
	}
	e.withdrawn.Done(b.withdrawals)
}
