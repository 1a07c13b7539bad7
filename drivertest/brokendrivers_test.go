package drivertest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// shared is what the clients of one broken store have in common.
type shared struct {
	mu     sync.Mutex
	tokens map[string]driver.Token
	asked  map[string]bool

	watched map[string]chan struct{}
}

var brokenDrivers = slices.Concat(brokenByTransport, brokenByRequest, []broken{
	{"double grant", breaks(func(b *bad) { b.try = doubleGrant }), "exclusive/one holder", "P1"},
	{"double grant in a stampede", breaks(func(b *bad) { b.try = checkThenTake }), "concurrency/a stampede has one winner", "P1"},
	{"double grant in a history", breaks(func(b *bad) { b.try = checkThenTake }), "history/scans", "P1"},
	{"permits are not counted", breaks(func(b *bad) { b.try = onePermit }), "slots/permits are counted", "P1"},
	{"since is the receipt", breaks(func(b *bad) { b.wait = sinceReceipt }), "queue/hand-off counts from before the release", "P1"},
	{"a renewal is not sent", breaks(func(b *bad) { b.renew = renewClaimsMore }), "renew/extends the hold", "P2"},
	{"renew revives an expired hold", breaks(func(b *bad) { b.renew = renewRevives }), "renew/never revives", "P2"},
	{"silent loss", breaks(func(b *bad) { b.renew = silentLoss }), "breaks/is told to the holder", "P2"},
	{"a cut-off client says its hold is gone", breaks(func(b *bad) { b.renew = goneOnTimeout }), "faults/a cut holder loses its hold", "P2"},
	{"token repeats", breaks(func(b *bad) { b.try = tokenRepeats }), "tokens/increase from hold to hold", "P3"},
	{"token repeats in a history", breaks(func(b *bad) { b.try = tokenRepeats }), "history/scans", "P3"},
	{"token reset after delete", breaks(func(b *bad) { b.try = tokenReset }), "tokens/increase after the name was idle", "P3"},
	{"token block without tokens", breaks(func(b *bad) { b.caps, b.try = manyTokens, claimsTokens }), "tokens/of a block are nobody else's", "P3"},
	{"token block without a word to the store", breaks(func(b *bad) { b.caps, b.renew = manyTokens, renewOldToken }), "tokens/of a block are nobody else's", "P3"},
	{"token block of which a release tells nothing", breaks(func(b *bad) { b.caps, b.try, b.release = manyTokens, notesToken, releaseOldToken }), "tokens/of a block are nobody else's", "P3"},
	{"token block that a break gives to others", breaks(func(b *bad) { b.caps, b.break_ = manyTokens, breakByRelease }), "tokens/of a block are nobody else's", "P3"},
	{"token block that nobody asked for", breaks(func(b *bad) { b.caps, b.try = manyTokens, alwaysReserves }), "tokens/of a block are nobody else's", "P3"},
	{"a token of another store is not shown", breaks(func(b *bad) { b.raisesNothing = true }), "raise/is shown and broken by", "P3"},
	{"a token of another store is forgotten", breaks(func(b *bad) { b.raisesNothing = true }), "raise/the next token is higher", "P3"},
	{"release by name", breaks(func(b *bad) { b.release = releaseByName }), "release/by another owner", "P4"},
	{"release by name in a history", breaks(func(b *bad) { b.release = releaseByName }), "history/linearizable", "P1"},
	{"renew without owner check", breaks(func(b *bad) { b.renew = renewByName }), "renew/checks the owner", "P4"},
	{"break without the token", breaks(func(b *bad) { b.break_ = breakAnyHold }), "breaks/needs the token it saw", "P4"},
	{"no lock-delay", breaks(func(b *bad) { b.try = noLockDelay }), "delays/lock-delay after expiry", "P5"},
	{"no minimum hold", breaks(func(b *bad) { b.release = noMinHold }), "delays/minimum hold", "P5"},
	{"no minimum hold of the dead", breaks(func(b *bad) { b.try = noMinHoldOfTheDead }), "delays/minimum hold after expiry", "P5"},
	{"a minimum hold of a dead winner", breaks(func(b *bad) { b.enqueue = minHoldOfClaims }), "delays/a dead winner has no minimum hold", "P7"},
	{"a timed-out acquire is left behind", breaks(func(b *bad) { b.release = noWithdrawal }), "withdrawal/of a place", "P6"},
	{"a late request takes effect", breaks(func(b *bad) { b.release = noTombstone }), "withdrawal/before the request", "P6"},
	{"a late request takes effect through faults", breaks(func(b *bad) { b.release = noTombstone }), "faults/a request later than its withdrawal", "P6"},
	{"lost wake-up", breaks(func(b *bad) { b.enqueue, b.wait = neverAsksAgain, sleeps }), "queue/a missed wake-up is made up by a poll", "P7"},
	{"dead waiters are kept alive", breaks(func(b *bad) { b.enqueue = immortalPlace }), "queue/a dead winner delays at most two polls", "P7"},
	{"overtaking", breaks(func(b *bad) { b.enqueue, b.wait = takesNoPlace, sleeps }), "fairness/a try does not overtake", "P8"},
	{"overtaking in a history", breaks(func(b *bad) { b.enqueue, b.wait = takesNoPlace, sleeps }), "history/scans", "P8"},
	{"readers overtake writers", breaks(func(b *bad) { b.try = alwaysUnfair }), "fairness/a reader does not overtake a writer", "P8"},
	{"double grant under locks", breaks(func(b *bad) { b.try, b.enqueue, b.wait = checkThenTake, checkThenTake, sleeps }), "client/no update is lost", "P1"},
	{"a timed-out acquire of a lock is left behind", breaks(func(b *bad) { b.release = noWithdrawal }), "client/a timed-out acquire leaves nothing", "P6"},
	{"a renewal is not sent for a lock", breaks(func(b *bad) { b.renew = renewClaimsMore }), "client/renewals outlive the TTL", "P2"},
	{"leak in the store", breaks(func(b *bad) { b.try = leavesKey }), "leaks/many names leave nothing", "P9"},
	{"leak of goroutines", breaks(func(b *bad) { b.try = leavesGoroutine }), "", "P9"},
	{"leak of names", breaks(func(b *bad) { b.try = leavesKey }), "", "P9"},
	{"goes on after close", breaks(func(b *bad) { b.afterClose = true }), "leaks/closed driver", "P9"},
	{"annotate takes whoever holds", breaks(func(b *bad) { b.annotate = annotatesAny }), "annotate/of a hold that is gone", "P4"},
	{"annotate renews", breaks(func(b *bad) { b.annotate = annotateRenews }), "annotate/does not renew", "P5"},
	{"annotate forgets", breaks(func(b *bad) { b.annotate = annotatesNothing }), "annotate/changes the note and nothing else", "P4"},
	{"a watch is not told", breaks(func(b *bad) { b.watch = neverTold }), "watch/tells of every change", "P7"},
	{"a watch does not end", breaks(func(b *bad) { b.watch = watchesOn }), "watch/ends with its context", "P9"},
	{"a watch wakes itself", breaks(func(b *bad) { b.watch = toldAlways }), "watch/does not wake itself", "P9"},
	{"names are folded", breaks(func(b *bad) { b.try = foldsNames }), "names/awkward names are kept apart", "P10"},
	{"mismatch is not told", breaks(func(b *bad) { b.try = noMismatch }), "mismatch/more slots", "P10"},
	{"caps differ", breaks(func(b *bad) { b.caps = storeByClient }), "guarantees/caps are the same for every client", "P10"},
	{"a fault without a verdict", breaks(func(b *bad) { b.caps = noVerdict }), "guarantees/every fault has a verdict", "P10"},
	{"caps list what is not there", breaks(func(b *bad) { b.caps = claimsShards }), "guarantees/operations are there, or refused", "P10"},
	{"does what caps do not list", breaks(func(b *bad) { b.caps = hidesShared }), "shared/readers together", "P10"},
})

// bad is a good driver of which some operations are replaced.
type bad struct {
	driver.Forward
	*shared
	try        func(*bad, context.Context, driver.Request) (driver.Grant, error)
	enqueue    func(*bad, context.Context, driver.Request) (driver.Grant, error)
	wait       func(*bad, context.Context, driver.Request) (driver.Grant, error)
	renew      func(*bad, context.Context, driver.Grant) driver.Renewal
	release    func(*bad, context.Context, driver.Grant) error
	break_     func(*bad, context.Context, string, driver.Token) error
	annotate   func(*bad, context.Context, driver.Grant) error
	watch      func(*bad, context.Context, string) (<-chan struct{}, error)
	caps       func(*bad) driver.Caps
	afterClose bool // goes on after Close

	raisesNothing bool // Raise is no more than Renew

	stop chan struct{}
	wg   sync.WaitGroup
}

func breaks(spoil func(*bad)) func(driver.Driver, *shared) driver.Driver {
	return func(good driver.Driver, s *shared) driver.Driver {
		b := &bad{Forward: driver.Forward{Driver: good}, shared: s, stop: make(chan struct{})}
		spoil(b)
		return b
	}
}

func (b *bad) Try(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if b.try != nil {
		return b.try(b, ctx, r)
	}
	return b.Driver.Try(ctx, r)
}

func (b *bad) Enqueue(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if b.enqueue != nil {
		return b.enqueue(b, ctx, r)
	}
	return b.Forward.Enqueue(ctx, r)
}

func (b *bad) Wait(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if b.wait != nil {
		return b.wait(b, ctx, r)
	}
	return b.Forward.Wait(ctx, r)
}

func (b *bad) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	if b.renew == nil {
		return b.Driver.Renew(ctx, grants)
	}
	out := make([]driver.Renewal, len(grants))
	for i, g := range grants {
		out[i] = b.renew(b, ctx, g)
	}
	return out
}

func (b *bad) Raise(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	if b.raisesNothing {
		grants = slices.Clone(grants)
		for i := range grants {
			grants[i].HandedOver = false
		}
		return b.Driver.Renew(ctx, grants)
	}
	return b.Forward.Raise(ctx, grants)
}

func (b *bad) Release(ctx context.Context, grants []driver.Grant) []error {
	if b.release == nil {
		return b.Driver.Release(ctx, grants)
	}
	out := make([]error, len(grants))
	for i, g := range grants {
		out[i] = b.release(b, ctx, g)
	}
	return out
}

func (b *bad) Break(ctx context.Context, name string, token driver.Token) error {
	if b.break_ != nil {
		return b.break_(b, ctx, name, token)
	}
	return b.Forward.Break(ctx, name, token)
}

func (b *bad) Annotate(ctx context.Context, g driver.Grant) error {
	if b.annotate != nil {
		return b.annotate(b, ctx, g)
	}
	return b.Forward.Annotate(ctx, g)
}

func (b *bad) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	if b.watch != nil {
		return b.watch(b, ctx, name)
	}
	return b.Forward.Watch(ctx, name)
}

func (b *bad) Caps() driver.Caps {
	if b.caps != nil {
		return b.caps(b)
	}
	return b.Driver.Caps()
}

func (b *bad) Close() error {
	close(b.stop)
	b.wg.Wait()
	if b.afterClose {
		return nil
	}
	return b.Driver.Close()
}

func (b *bad) good1(ctx context.Context, g driver.Grant) driver.Renewal {
	return b.Driver.Renew(ctx, []driver.Grant{g})[0]
}

func (b *bad) goodRelease(ctx context.Context, g driver.Grant) error {
	return b.Driver.Release(ctx, []driver.Grant{g})[0]
}

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

// checkThenTake checks whether the name is free, and takes it in a second step that does not
// check again.
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

func onePermit(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
	one := r
	one.Permits = min(1, r.Permits)
	g, err := b.Driver.Try(ctx, one)
	g.Request = r
	return g, err
}

func sinceReceipt(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, err := b.Forward.Wait(ctx, r)
	g.Since = driver.HostClock.Now()
	return g, err
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

func silentLoss(b *bad, ctx context.Context, g driver.Grant) driver.Renewal {
	r := b.good1(ctx, g)
	if driver.Gone(r.Err) {
		return driver.Renewal{Since: driver.HostClock.Now(), Valid: g.TTL}
	}
	return r
}

func goneOnTimeout(b *bad, ctx context.Context, g driver.Grant) driver.Renewal {
	r := b.good1(ctx, g)
	if r.Err != nil {
		r.Err = driver.ErrBroken
	}
	return r
}

func tokenRepeats(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, err := b.Driver.Try(ctx, r)
	g.Token = (g.Token + 15) / 16
	return g, err
}

// tokenReset keeps the counter in the record, which goes when the name is idle.
func tokenReset(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
	info, _ := b.Inspect(ctx, r.Name)
	g, err := b.Driver.Try(ctx, r)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tokens == nil {
		b.tokens = map[string]driver.Token{}
	}
	if info.Idle() {
		delete(b.tokens, r.Name)
	}
	if err == nil {
		b.tokens[r.Name]++
		g.Token = b.tokens[r.Name]
	}
	return g, err
}

func manyTokens(b *bad) driver.Caps {
	caps := b.Driver.Caps()
	caps.TokenBlock = 16
	return caps
}

// claimsTokens reserves one token and claims a block of them.
func claimsTokens(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
	one := r
	one.Tokens = 1
	g, err := b.Driver.Try(ctx, one)
	g.Request, g.Block = r, r.Tokens
	return g, err
}

// alwaysReserves reserves a block for every hold.
func alwaysReserves(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
	wide := r
	wide.Tokens = b.Caps().TokenBlock
	g, err := b.Driver.Try(ctx, wide)
	g.Request = r
	return g, err
}

// notesToken notes the first token of each hold, for releaseOldToken.
func notesToken(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, err := b.Driver.Try(ctx, r)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tokens == nil {
		b.tokens = map[string]driver.Token{}
	}
	if err == nil {
		b.tokens[r.Owner] = g.Token
	}
	return g, err
}

// releaseOldToken releases a hold as if only the first token of its block had been used.
func releaseOldToken(b *bad, ctx context.Context, g driver.Grant) error {
	b.mu.Lock()
	g.Token, g.HandedOver = b.tokens[g.Owner], false
	b.mu.Unlock()
	return b.goodRelease(ctx, g)
}

// breakByRelease breaks a hold as if its holder had released it, so that the rest of its
// block goes to others.
func breakByRelease(b *bad, ctx context.Context, name string, token driver.Token) error {
	info, _ := b.Inspect(ctx, name)
	for _, h := range info.Holders {
		if h.Token == token {
			return b.goodRelease(ctx, driver.Grant{Request: driver.Request{Name: name, Owner: h.Owner}, Token: token})
		}
	}
	return driver.ErrNotHeld
}

func renewOldToken(b *bad, ctx context.Context, g driver.Grant) driver.Renewal {
	g.HandedOver = false
	return b.good1(ctx, g)
}

// releaseByName frees the hold on the name, whichever owner has it.
func releaseByName(b *bad, ctx context.Context, g driver.Grant) error {
	info, _ := b.Inspect(ctx, g.Name)
	for _, h := range info.Holders {
		theirs := g
		theirs.Owner, theirs.Token = h.Owner, h.Token
		b.goodRelease(ctx, theirs)
	}
	return b.goodRelease(ctx, g)
}

func renewByName(b *bad, ctx context.Context, g driver.Grant) driver.Renewal {
	info, _ := b.Inspect(ctx, g.Name)
	for _, h := range info.Holders {
		g.Owner = h.Owner
	}
	return b.good1(ctx, g)
}

func breakAnyHold(b *bad, ctx context.Context, name string, token driver.Token) error {
	info, _ := b.Inspect(ctx, name)
	for _, h := range info.Holders {
		token = h.Token
	}
	return b.Forward.Break(ctx, name, token)
}

func noLockDelay(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
	r.LockDelay = 0
	return b.Driver.Try(ctx, r)
}

// noMinHoldOfTheDead keeps the minimum hold after a release, which says how long it is, and
// not after an expiry.
func noMinHoldOfTheDead(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
	without := r
	without.MinHold = 0
	g, err := b.Driver.Try(ctx, without)
	g.Request = r
	return g, err
}

func minHoldOfClaims(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
	long := r
	long.LockDelay = r.MinHold
	g, err := b.Forward.Enqueue(ctx, long)
	g.Request = r
	return g, err
}

func noMinHold(b *bad, ctx context.Context, g driver.Grant) error {
	g.MinHold = 0
	return b.goodRelease(ctx, g)
}

// noWithdrawal does nothing for a release without a token.
func noWithdrawal(b *bad, ctx context.Context, g driver.Grant) error {
	if g.Token == 0 {
		return nil
	}
	return b.goodRelease(ctx, g)
}

// noTombstone withdraws what has arrived, and leaves no tombstone.
func noTombstone(b *bad, ctx context.Context, g driver.Grant) error {
	if g.Token == 0 {
		g.Token = 1
	}
	return b.goodRelease(ctx, g)
}

// neverAsksAgain takes a place once, and then relies on a wake-up.
func neverAsksAgain(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
	b.mu.Lock()
	asked := b.asked[r.Owner]
	if b.asked == nil {
		b.asked = map[string]bool{}
	}
	b.asked[r.Owner] = true
	b.mu.Unlock()
	if asked {
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

// immortalPlace confirms places in the background, whether or not their waiter lives, and
// collects their grants.
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

func alwaysUnfair(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
	r.Unfair = true
	g, err := b.Driver.Try(ctx, r)
	g.Unfair = false
	return g, err
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

// leavesGoroutine leaves a goroutine behind that outlives the client and ends before the next
// test.
func leavesGoroutine(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
	go time.Sleep(2 * time.Second)
	return b.Driver.Try(ctx, r)
}

func foldsNames(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
	folded := r
	folded.Name = strings.ToLower(r.Name)
	g, err := b.Driver.Try(ctx, folded)
	g.Request = r
	return g, err
}

func noMismatch(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, err := b.Driver.Try(ctx, r)
	if err != nil {
		err = driver.ErrHeld
	}
	return g, err
}

func storeByClient(b *bad) driver.Caps {
	c := b.Driver.Caps()
	c.Store += newOwner()
	return c
}

func noVerdict(b *bad) driver.Caps {
	c := b.Driver.Caps()
	faults := map[driver.Fault]driver.Verdict{}
	for f, v := range c.Guarantees.Faults {
		if f != driver.Failover {
			faults[f] = v
		}
	}
	c.Guarantees.Faults = faults
	return c
}

func claimsShards(b *bad) driver.Caps {
	c := b.Driver.Caps()
	c.Ops |= driver.OpShard | 1<<20
	return c
}

func hidesShared(b *bad) driver.Caps {
	c := b.Driver.Caps()
	c.Shared = false
	return c
}
