package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/batch"
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
	e.withdrawn.Set(&withdrawal{grant: g, until: e.now.Add(g.TTL), pause: firstPause}, e.now)
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
// many withdrawals await a store that does not answer.
func (e *Engine) overloaded() error {
	if e.open < MaxWithdrawals || e.silence == nil {
		return nil
	}
	return fmt.Errorf("%d acquires and releases await the store's confirmation: %w", e.open, otherOperation{e.silence})
}

// otherOperation is an error of the store without what it said of another operation: that its
// outcome is uncertain, or that the time was over that it had.
type otherOperation struct{ err error }

func (o otherOperation) Error() string { return o.err.Error() }

func (o otherOperation) Is(target error) bool {
	return target != driver.ErrUncertain && target != context.DeadlineExceeded && errors.Is(o.err, target)
}

func (o otherOperation) As(target any) bool { return errors.As(o.err, target) }

// sendWithdrawals sends off a batch.
func (e *Engine) sendWithdrawals(withdrawals batch.Batch[*withdrawal]) {
	b := &Batch{withdrawals: withdrawals, Within: withdrawals.Within, began: e.now}
	for _, w := range withdrawals.Items {
		b.Grants = append(b.Grants, w.grant)
	}
	e.effect(Effect{Kind: Withdraw, Batch: b})
}

// batchWithdrawn takes in the outcomes of a batch.
func (e *Engine) batchWithdrawn(b *Batch, errs []error, ranOut bool) {
	through := 0
	for i, w := range b.withdrawals.Items {
		err := errs[i]
		if err == nil || driver.Gone(err) {
			through++
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
	ranOut = ranOut && through < len(b.Grants)
	e.withdrawn.Done(b.withdrawals, e.now, batch.Result{Through: through, RanOut: ranOut, Took: e.now.Sub(b.began)})
}
