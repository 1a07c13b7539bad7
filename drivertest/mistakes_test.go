package drivertest

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

type trying = func(*bad, context.Context, driver.Request) (driver.Grant, error)

// doubleGrant grants a name that is held again: it takes another name instead.
func doubleGrant(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, err := b.Driver.Try(ctx, r)
	if err == nil {
		return g, nil
	}
	second := r
	second.Name += "/again"
	g, err = b.Driver.Try(ctx, second)
	g.Request = r
	return g, err
}

// checkThenTake checks whether the name is free, and takes it in a second step that does not check again.
func checkThenTake(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
	if info, err := b.Inspect(ctx, r.Name); err != nil || !info.Idle() {
		return driver.Grant{}, driver.ErrHeld
	}
	time.Sleep(time.Millisecond)
	if g, err := b.Driver.Try(ctx, r); err == nil {
		return g, nil
	}
	now := driver.HostClock.Now()
	return driver.Grant{Request: r, Token: 1 << 40, Since: now, Valid: r.TTL}, nil
}

func renewClaimsMore(b *bad, ctx context.Context, g driver.Grant) driver.Renewal {
	now := driver.HostClock.Now()
	if info, _ := b.Inspect(ctx, g.Name); len(info.Holders) == 0 {
		return driver.Renewal{Err: driver.ErrNotHeld}
	}
	return driver.Renewal{Since: now, Valid: g.TTL} // without a request to the store
}

func renewRevives(b *bad, ctx context.Context, g driver.Grant) driver.Renewal {
	r := b.good1(ctx, g)
	if r.Err != nil {
		if again, err := b.Driver.Try(ctx, g.Request); err == nil {
			return driver.Renewal{Since: again.Since, Valid: again.Valid}
		}
	}
	return r
}

// tokenReset keeps the counter in the record, which goes when the name is idle.
func tokenReset(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
	info, _ := b.Inspect(ctx, r.Name)
	g, err := b.Driver.Try(ctx, r)
	if info.Idle() {
		g.Token = 1
	}
	return g, err
}

// notes notes what it grants.
func notes(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, err := b.Driver.Try(ctx, r)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.granted[r.Owner] = g
	return g, err
}

// oldToken is of a release as if only the first token of the block had been used.
func oldToken(b *bad, g *driver.Grant) { g.Token, g.HandedOver = b.first(g.Owner).Token, false }

// undoneLate is of a release that keeps the minimum hold of a hold that is undone.
func undoneLate(b *bad, g *driver.Grant) { g.MinHold = b.first(g.Owner).MinHold }

func (s *shared) first(owner string) driver.Grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.granted[owner]
}

func renewOldToken(b *bad, ctx context.Context, g driver.Grant) driver.Renewal {
	g.HandedOver = false
	return b.good1(ctx, g)
}

// releaseByName frees the hold on the name, whichever owner has it.
func releaseByName(b *bad, ctx context.Context, g driver.Grant) error {
	b.goodRelease(ctx, b.holder(ctx, g))
	return b.goodRelease(ctx, g)
}

func renewByName(b *bad, ctx context.Context, g driver.Grant) driver.Renewal {
	return b.good1(ctx, b.holder(ctx, g))
}

func downgradeByName(b *bad, ctx context.Context, g driver.Grant) (driver.Grant, error) {
	return b.Forward.Downgrade(ctx, b.holder(ctx, g))
}

// holder returns a grant as if it were that of whoever holds the name.
func (b *bad) holder(ctx context.Context, g driver.Grant) driver.Grant {
	info, _ := b.Forward.Inspect(ctx, g.Name)
	for _, h := range info.Holders {
		g.Owner, g.Token = h.Owner, h.Token
	}
	return g
}

func breakAnyHold(b *bad, ctx context.Context, name string, _ driver.Token) error {
	g := b.holder(ctx, driver.Grant{Request: driver.Request{Name: name}})
	return b.Forward.Break(ctx, name, g.Token)
}

// neverAsksAgain takes a place once, and then relies on a wake-up.
func neverAsksAgain(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
	if b.asks(r.Owner) {
		return driver.Grant{}, driver.ErrHeld
	}
	return b.Forward.Enqueue(ctx, r)
}

func sleeps(b *bad, ctx context.Context, _ driver.Request) (driver.Grant, error) {
	select {
	case <-ctx.Done():
		return driver.Grant{}, ctx.Err()
	case <-time.After(3 * time.Millisecond):
		return driver.Grant{}, driver.ErrHeld
	}
}

// immortalPlace confirms places in the background, whether or not their waiter lives, and collects their grants.
func immortalPlace(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, err := b.Forward.Enqueue(ctx, r)
	if err != nil {
		b.wg.Go(func() {
			for {
				select {
				case <-b.stop:
					return
				case <-time.After(fastPoll / 4):
					b.Forward.Enqueue(context.Background(), r)
				}
			}
		})
	}
	return g, err
}

// takesNoPlace polls instead of queueing.
func takesNoPlace(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
	return b.Driver.Try(ctx, r)
}

// leavesKey leaves a key beside the name, for as long as its TTL.
func leavesKey(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, err := b.Driver.Try(ctx, r)
	if err == nil {
		left := r
		left.Name, left.Owner = r.Name+"/queue", newOwner()
		b.Driver.Try(ctx, left)
	}
	return g, err
}

// leavesGoroutine leaves a goroutine behind that outlives the client and ends before the next test.
func leavesGoroutine(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
	go time.Sleep(2 * time.Second)
	return b.Driver.Try(ctx, r)
}

// apart gives a read-write lock the name that it has in a layout that keeps those apart.
func apart(r *driver.Request) {
	if r.RW {
		r.Name += "/rw"
	}
}

// watchesHold keeps a goroutine for each hold, until stopsWatching.
func watchesHold(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, err := b.Driver.Try(ctx, r)
	if err == nil {
		end := make(chan struct{})
		b.mu.Lock()
		b.watched[r.Owner] = end
		b.mu.Unlock()
		b.wg.Go(func() {
			select {
			case <-end:
			case <-b.stop:
			}
		})
	}
	return g, err
}

func stopsWatching(b *bad, ctx context.Context, g driver.Grant) error {
	b.mu.Lock()
	if end := b.watched[g.Owner]; end != nil {
		close(end)
		delete(b.watched, g.Owner)
	}
	b.mu.Unlock()
	return b.goodRelease(ctx, g)
}

func neverTold(_ *bad, ctx context.Context, _ string) (<-chan struct{}, error) {
	hints := make(chan struct{})
	context.AfterFunc(ctx, func() { close(hints) })
	return hints, nil
}

func watchesOn(b *bad, ctx context.Context, name string) (<-chan struct{}, error) {
	return b.Forward.Watch(context.WithoutCancel(ctx), name)
}

// breakByRelease breaks a hold as if its holder had released it, so that the rest of its block goes to others.
func breakByRelease(b *bad, ctx context.Context, name string, token driver.Token) error {
	info, _ := b.Inspect(ctx, name)
	for _, h := range info.Holders {
		if h.Token == token {
			return b.goodRelease(ctx, driver.Grant{Request: driver.Request{Name: name, Owner: h.Owner}, Token: token})
		}
	}
	return driver.ErrNotHeld
}

// altered asks the store for something else than the caller, who is not told.
func altered(good trying, change func(*driver.Request)) trying {
	return func(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
		other := r
		change(&other)
		g, err := good(b, ctx, other)
		g.Request = r
		if err == nil && g.Valid == other.TTL {
			g.Valid = r.TTL
		}
		return g, err
	}
}

func halfTheDelays(r *driver.Request) { r.LockDelay /= 2; r.MinHold /= 2 }
func noteCut(r *driver.Request)       { r.Note = r.Note[:min(len(r.Note), 250)] }
func halfTheTTL(r *driver.Request)    { r.TTL /= 2 }
func fewPermits(r *driver.Request)    { r.Permits = min(1, r.Permits) }
func isUnfair(r *driver.Request)      { r.Unfair = true }
func manyReserved(r *driver.Request)  { r.Tokens = 16 }
func oneReserved(r *driver.Request)   { r.Tokens = 1 }
func folded(r *driver.Request)        { r.Name = strings.ToLower(r.Name) }

// answers changes what a good driver answers.
func answers(good trying, change func(driver.Request, *driver.Grant, *error)) trying {
	return func(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
		g, err := good(b, ctx, r)
		change(r, &g, &err)
		return g, err
	}
}

func noMismatch(_ driver.Request, _ *driver.Grant, err *error) {
	if *err != nil {
		*err = driver.ErrHeld
	}
}

// plainError hides that the outcome is not known.
func plainError(_ driver.Request, g *driver.Grant, err *error) {
	if errors.Is(*err, driver.ErrUncertain) {
		*g, *err = driver.Grant{}, io.ErrUnexpectedEOF
	}
}

// regrants changes the grants of a good driver.
func regrants(good trying, change func(*driver.Grant)) trying {
	return answers(good, func(_ driver.Request, g *driver.Grant, err *error) {
		if *err == nil {
			change(g)
		}
	})
}

func tokenRepeats(g *driver.Grant) { g.Token = (g.Token + 15) / 16 }
func sinceNow(g *driver.Grant)     { g.Since = driver.HostClock.Now() }
func isQuiet(g *driver.Grant)      { g.Contended = false }
func wideBlock(g *driver.Grant)    { g.Block = max(1, g.Tokens) }
func sinceZero(g *driver.Grant)    { g.Since = 0 }
func noClaim(g *driver.Grant)      { g.Claim = false }
func wholeClaim(g *driver.Grant)   { g.Valid = g.TTL }
func lowToken(g *driver.Grant)     { g.Token = 1 }
func unlikeHandle(g *driver.Grant) { g.Handle = []int{1} }

// refuses changes the hints of a good driver.
func refuses(good trying, change func(*driver.HeldError)) trying {
	return answers(good, func(_ driver.Request, _ *driver.Grant, err *error) {
		if held, ok := errors.AsType[*driver.HeldError](*err); ok {
			change(held)
		}
	})
}

type renewing = func(*bad, context.Context, driver.Grant) driver.Renewal

// renews changes the renewals of a good driver.
func renews(good renewing, change func(driver.Grant, *driver.Renewal)) renewing {
	return func(b *bad, ctx context.Context, g driver.Grant) driver.Renewal {
		r := good(b, ctx, g)
		change(g, &r)
		return r
	}
}

func atArrival(_ driver.Grant, r *driver.Renewal) { r.Since = driver.HostClock.Now() }

func silentLoss(g driver.Grant, r *driver.Renewal) {
	if driver.Gone(r.Err) {
		*r = driver.Renewal{Since: driver.HostClock.Now(), Valid: g.TTL}
	}
}

func goneOnTimeout(_ driver.Grant, r *driver.Renewal) {
	if r.Err != nil {
		r.Err = driver.ErrBroken
	}
}

// releases changes the grants that are released.
func releases(change func(*bad, *driver.Grant)) func(*bad, context.Context, driver.Grant) error {
	return func(b *bad, ctx context.Context, g driver.Grant) error {
		change(b, &g)
		return b.goodRelease(ctx, g)
	}
}

func releasedSoon(_ *bad, g *driver.Grant)      { g.MinHold /= 2 }
func releasedWithDelay(_ *bad, g *driver.Grant) { g.MinHold = max(g.MinHold, g.LockDelay) }

// noWithdrawal withdraws the request of somebody else.
func noWithdrawal(_ *bad, g *driver.Grant) {
	if g.Token == 0 {
		g.Owner = newOwner()
	}
}

// noTombstone withdraws what has arrived, and leaves no tombstone.
func noTombstone(_ *bad, g *driver.Grant) { g.Token = max(1, g.Token) }

// twiceForOne takes a second hold or place for an owner that asks again.
func twiceForOne(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, err := b.Forward.Enqueue(ctx, r)
	if b.asks(r.Owner) {
		r.Owner += "/again"
		b.Forward.Enqueue(ctx, r)
	}
	return g, err
}

// toTheEnd takes a new place for an owner that confirms its own.
func toTheEnd(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
	info, _ := b.Forward.Inspect(ctx, r.Name)
	for _, w := range info.Waiters {
		if w.Owner == r.Owner {
			b.goodRelease(ctx, driver.Grant{Request: r, Token: 1})
		}
	}
	return b.Forward.Enqueue(ctx, r)
}

// unfairIntrudes grants an unfair request whatever is held.
func unfairIntrudes(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
	if r.Unfair {
		return doubleGrant(b, ctx, r)
	}
	return b.Driver.Try(ctx, r)
}

func downgradeRevives(b *bad, ctx context.Context, g driver.Grant) (driver.Grant, error) {
	shared, err := b.Forward.Downgrade(ctx, g)
	if err != nil {
		g.Mode = driver.Shared
		return b.Driver.Try(ctx, g.Request)
	}
	return shared, err
}

// holders changes each holder that is shown.
func holders(change func(*driver.Holder)) func(*driver.Info) {
	return func(i *driver.Info) {
		for n := range i.Holders {
			change(&i.Holders[n])
		}
	}
}
