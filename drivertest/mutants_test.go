package drivertest

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/wrap"
	"github.com/holdfastlock/holdfast/memlock"
)

// mutant is a driver with one mistake, and the case that must find it.
type mutant struct {
	name    string
	spoil   func(*bad)
	case_   string // must find it, others may too; "": the checks after the last case must
	promise string

	only []driver.Mode // in which modes it is a mistake; nil: in all
}

var mutants = []mutant{
	{"double grant", func(b *bad) { b.try = doubleGrant }, "exclusive/one holder", "P1", nil},
	{"double grant in a stampede", func(b *bad) { b.try = checkThenTake }, "concurrency/a stampede has one winner", "P1", nil},
	{"double grant in a history", func(b *bad) { b.try = checkThenTake }, "history/scans", "P1", nil},
	{"permits are not counted", func(b *bad) { b.try = altered((*bad).goodTry, fewPermits) }, "slots/permits are counted", "P1", nil},
	{"a cut-off client says its hold is gone", func(b *bad) { b.renew = renews((*bad).good1, goneOnTimeout) }, "faults/a cut holder loses its hold", "P2", nil},
	{"token repeats", func(b *bad) { b.try = regrants((*bad).goodTry, tokenRepeats) }, "tokens/increase from hold to hold", "P3", nil},
	{"token repeats in a history", func(b *bad) { b.try = regrants((*bad).goodTry, tokenRepeats) }, "history/scans", "P3", nil},
	{"token reset after delete", func(b *bad) { b.try = tokenReset }, "tokens/increase after the name was idle", "P3", nil},
	{"token block without a word to the store", func(b *bad) { b.caps, b.renew = manyTokens, renewOldToken }, "tokens/of a block are nobody else's", "P3", nil},
	{"token block that a break gives to others", func(b *bad) { b.caps, b.break_ = manyTokens, breakByRelease }, "tokens/of a block are nobody else's", "P3", nil},
	{"release by name in a history", func(b *bad) { b.release = releaseByName }, "history/linearizable", "P1", nil},
	{"break without the token", func(b *bad) { b.break_ = breakAnyHold }, "breaks/needs the token it saw", "P4", nil},
	{"lost wake-up", func(b *bad) { b.enqueue, b.wait = neverAsksAgain, sleeps }, "queue/a place is idempotent by owner", "P7", nil},
	{"overtaking in a history", func(b *bad) { b.enqueue, b.wait = takesNoPlace, sleeps }, "history/scans", "P8", nil},
	{"readers overtake writers", func(b *bad) { b.try = altered((*bad).goodTry, isUnfair) }, "fairness/a reader does not overtake a writer", "P8", nil},
	{"leak in the store", func(b *bad) { b.try = leavesKey }, "inspect/an unused name is idle", "P9", nil},
	{"leak of goroutines", func(b *bad) { b.try = leavesGoroutine }, "", "P9", nil},
	{"leak of names", func(b *bad) { b.try = leavesKey }, "", "P9", nil},
	{"goes on after close", func(b *bad) { b.afterClose = true }, "leaks/closed driver", "P9", nil},
	{"a watch is not told", func(b *bad) { b.watch = neverTold }, "watch/tells of every change", "P7", nil},
	{"a watch does not end", func(b *bad) { b.watch = watchesOn }, "watch/ends with its context", "P9", nil},
	{"names are folded", func(b *bad) { b.try = altered((*bad).goodTry, folded) }, "names/awkward names are kept apart", "P10", nil},
	{"mismatch is not told", func(b *bad) { b.try = answers((*bad).goodTry, noMismatch) }, "mismatch/more slots", "P10", nil},
	{"caps differ", func(b *bad) { b.caps = func(c *driver.Caps) { c.Store += newOwner() } }, "guarantees/caps are the same for every client", "P10", nil},
	{"a fault without a verdict", func(b *bad) {
		b.caps = func(c *driver.Caps) {
			c.Guarantees.Faults = maps.Clone(c.Guarantees.Faults)
			delete(c.Guarantees.Faults, driver.Failover)
		}
	}, "guarantees/every fault has a verdict", "P10", nil},
	{"does what caps do not list", func(b *bad) { b.caps = func(c *driver.Caps) { c.Shared = false } }, "guarantees/modes are there, or refused", "P10", nil},
	{"a write lock is another lock than the mutex", func(b *bad) { b.try = altered((*bad).goodTry, apart) }, "read-write/a mutex and a write lock", "P1", nil},
	{"a write lock queues for another lock than the mutex", func(b *bad) { b.enqueue = altered((*bad).goodEnqueue, apart) }, "read-write/a write lock waits behind a mutex", "P1", nil},
	{"no grant is contended", func(b *bad) {
		b.caps = manyTokens
		b.enqueue, b.wait = regrants((*bad).goodEnqueue, isQuiet), regrants((*bad).goodWait, isQuiet)
	}, "contention/another is queued at the grant", "P8", nil},
	{"a block that nobody asked for", func(b *bad) { b.caps, b.try = manyTokens, altered((*bad).goodTry, manyReserved) }, "tokens/no more are reserved than were asked for", "P3", nil},
	{"a release goes on from the first token of the block", func(b *bad) { b.caps, b.try, b.release = manyTokens, notes, releases(oldToken) }, "tokens/increase after a block that was used in part", "P3", nil},
	{"a block of the dead is not reserved", func(b *bad) { b.caps, b.try = manyTokens, regrants(altered((*bad).goodTry, oneReserved), wideBlock) }, "tokens/increase after a block whose holder died", "P3", nil},
	{"a try without an answer is a plain error", func(b *bad) { b.try = answers((*bad).goodTry, plainError) }, "transport/a try without an answer is uncertain", "P6", nil},
	{"a place without an answer is a plain error", func(b *bad) { b.enqueue = answers((*bad).goodEnqueue, plainError) }, "transport/a place without an answer is uncertain", "P6", nil},
	{"a late request takes effect on the wire", func(b *bad) { b.release = releases(noTombstone) }, "transport/a try later than its withdrawal", "P6", nil},
	{"a goroutine for each hold", func(b *bad) { b.try, b.release = watchesHold, stopsWatching }, "leaks/goroutines do not grow with holds", "P9", nil},
	{"a low token after a downgrade", func(b *bad) { b.caps, b.renew = manyTokens, renewOldToken }, "downgrade/keeps the token that was handed over", "P3", nil},
	{"a downgrade by name", func(b *bad) { b.downgrade = downgradeByName }, "downgrade/checks the owner", "P4", nil},
	{"a downgrade revives an expired hold", func(b *bad) { b.downgrade = downgradeRevives }, "downgrade/of a hold that is gone", "P2", nil},
	{"a writer that is unfair intrudes", func(b *bad) { b.try = unfairIntrudes }, "fairness/unfair may overtake but not intrude", "P1", nil},
	{"a handle that cannot be compared", func(b *bad) { b.try = regrants((*bad).goodTry, unlikeHandle) }, "exclusive/one holder", "P9", nil},
	{"a closed name is shown as free", func(b *bad) { b.shows = func(i *driver.Info) { i.ClosedFor = 0 } }, "delays/minimum hold", "P9", nil},
	{"another token is shown", func(b *bad) { b.shows = holders(func(h *driver.Holder) { h.Token++ }) }, "inspect/shows the holder", "P3", nil},
	{"a held error with a note that is cut", func(b *bad) {
		b.try = refuses((*bad).goodTry, func(e *driver.HeldError) { e.Note = e.Note[:min(len(e.Note), 250)] })
	}, "exclusive/held error tells the truth", "P10", nil},
	{"a place with too many ahead", func(b *bad) { b.enqueue = refuses((*bad).goodEnqueue, func(e *driver.HeldError) { e.Ahead += 100 }) }, "fairness/places are granted in order", "P8", nil},
}

// mutantsOfAMode make the mistake in one mode, and are right in the others. Each row is a mutant for each mode that
// the case is about.
var mutantsOfAMode = []mutant{
	{"half the lock-delay", func(b *bad) { b.try = altered((*bad).goodTry, halfTheDelays) }, "delays/lock-delay after expiry", "P5", nil},
	{"half the minimum hold", func(b *bad) { b.release = releases(releasedSoon) }, "delays/minimum hold", "P5", nil},
	{"half the minimum hold of the dead", func(b *bad) { b.try = altered((*bad).goodTry, halfTheDelays) }, "delays/minimum hold after expiry", "P5", nil},
	{"a lock-delay after a release", func(b *bad) { b.release = releases(releasedWithDelay) }, "delays/no lock-delay after release", "P5", nil},
	{"a minimum hold of what is undone", func(b *bad) { b.try, b.release = notes, releases(undoneLate) }, "withdrawal/ignores the minimum hold", "P6", nil},
	{"half the TTL", func(b *bad) { b.try = altered((*bad).goodTry, halfTheTTL) }, "expiry/a hold lasts as long as it is trusted, and then opens", "P1", nil},
	{"a note is cut", func(b *bad) { b.try = altered((*bad).goodTry, noteCut) }, "inspect/shows the holder", "P9", nil},
	{"since long ago", func(b *bad) { b.try = regrants((*bad).goodTry, sinceZero) }, "exclusive/a grant arrives with time to work", "P1", nil},
	{"since the reply to a try", func(b *bad) { b.try = regrants((*bad).goodTry, sinceNow) }, "transport/a late reply to a try counts from its request", "P1", nil},
	{"since the reply to a renewal", func(b *bad) { b.renew = renews((*bad).good1, atArrival) }, "transport/a late reply to a renewal counts from its request", "P1", nil},
	{"since the queue's reply", func(b *bad) { b.enqueue = regrants((*bad).goodEnqueue, sinceNow) }, "transport/a late reply of the queue counts from its request", "P1", nil},
	{"since the reply that hands over", func(b *bad) { b.enqueue = regrants((*bad).goodEnqueue, sinceNow) }, "transport/a late reply that hands over counts from its request", "P1", nil},
	{"since the wake-up", func(b *bad) { b.wait = regrants((*bad).goodWait, sinceNow) }, "queue/hand-off counts from before the release", "P1", nil},
	{"a claim that is not marked", func(b *bad) { b.wait = regrants((*bad).goodWait, noClaim) }, "queue/a claim is short and its renewal is not", "P7", nil},
	{"a claim with the whole TTL", func(b *bad) { b.wait = regrants((*bad).goodWait, wholeClaim) }, "queue/a claim is short and its renewal is not", "P7", nil},
	{"a low token", func(b *bad) {
		b.wait, b.enqueue = regrants((*bad).goodWait, lowToken), regrants((*bad).goodEnqueue, lowToken)
	}, "queue/hand-off", "P3", []driver.Mode{driver.Exclusive, driver.Shared}},
	{"a renewal is not sent", func(b *bad) { b.renew = renewClaimsMore }, "renew/extends the hold", "P2", nil},
	{"renew revives an expired hold", func(b *bad) { b.renew = renewRevives }, "renew/never revives", "P2", nil},
	{"renew by name", func(b *bad) { b.renew = renewByName }, "renew/checks the owner", "P4", nil},
	{"release by name", func(b *bad) { b.release = releaseByName }, "release/by another owner", "P4", nil},
	{"silent loss", func(b *bad) { b.renew = renews((*bad).good1, silentLoss) }, "breaks/is told to the holder", "P2", nil},
	{"no tombstone", func(b *bad) { b.release = releases(noTombstone) }, "withdrawal/before the request", "P6", nil},
	{"no withdrawal", func(b *bad) { b.release = releases(noWithdrawal) }, "withdrawal/of a hold", "P6", nil},
	{"no withdrawal of a place", func(b *bad) { b.release = releases(noWithdrawal) }, "withdrawal/of a place", "P6", nil},
	{"two holds for one owner", func(b *bad) { b.enqueue = twiceForOne }, "queue/a place is idempotent by owner", "P6", nil},
	{"a place moves when it is confirmed", func(b *bad) { b.enqueue = toTheEnd }, "fairness/places are granted in order", "P8", nil},
	{"overtaking", func(b *bad) { b.enqueue, b.wait = takesNoPlace, sleeps }, "fairness/a try does not overtake", "P8", nil},
	{"dead waiters are kept alive", func(b *bad) { b.enqueue = immortalPlace }, "queue/a dead winner delays at most two polls", "P7", nil},
}

func manyTokens(c *driver.Caps) { c.TokenBlock = 16 }

// fastPoll makes cases quick that wait for polls. A slow machine does no harm, because failures are expected here.
const fastPoll = 100 * time.Millisecond

func TestMutants(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) { m.mustBeFound(t, "") })
	}
	for _, m := range mutantsOfAMode {
		for _, k := range modes {
			if !m.concerns(k) {
				continue
			}
			one := m
			one.spoil = func(b *bad) {
				m.spoil(b)
				b.wrong = func(mode driver.Mode) bool { return mode == k.mode }
			}
			t.Run(m.name+k.suffix(), func(t *testing.T) { one.mustBeFound(t, " ("+k.name) })
		}
	}
}

// concerns reports whether the case of a mutant has holds of a mode.
func (m mutant) concerns(k kind) bool {
	for _, th := range (&suite{h: Harness{Transport: func(testing.TB) (driver.Driver, Transport) { return nil, nil }}}).themes() {
		for _, c := range th.cases {
			if th.name+"/"+c.name == m.case_ {
				of := func(other kind) bool { return other.mode == k.mode }
				return slices.ContainsFunc(c.kinds, of) && (m.only == nil || slices.Contains(m.only, k.mode))
			}
		}
	}
	return true // it fails, because there is no such case
}

// mustBeFound runs the mutant's case, which must fail with a hold of a kind that begins so.
func (m mutant) mustBeFound(t *testing.T, kind string) {
	t.Helper()
	only, poll := m.case_, fastPoll
	if only == "" {
		only = "exclusive/one holder" // anything that uses the driver
	}
	switch {
	case strings.HasPrefix(only, "transport/a late reply"):
	case strings.HasPrefix(only, "transport/"):
		poll *= 4 // what a driver leaves behind must be there long enough to be found
	}
	r := judge(t, breaks(m.spoil), poll, only)
	for range 2 { // on a slow machine a poll may be over before what it waits for happens
		if !r.found(m.case_, m.promise, kind) {
			poll *= 4
			r = judge(t, breaks(m.spoil), poll, only)
		}
	}
	mustFind(t, r, m.case_, m.promise, kind)
}

// judge runs the suite, or some cases of it, over drivers that wrap makes of memlock's, and returns their failures.
func judge(t *testing.T, wrap func(driver.Driver, *shared) driver.Driver, poll time.Duration, only ...string) *recorder {
	store := memlock.NewStore(&memlock.Options{Poll: poll})
	state := newShared()
	r := &recorder{TB: t, name: t.Name()}
	h := Harness{
		Open: func(testing.TB) driver.Driver { return wrap(store.Client(), state) },
		Transport: func(testing.TB) (driver.Driver, Transport) {
			wire := chaos.New(store.Client(), chaos.Options{})
			return wrap(wire, state), InProcess(wire)
		},
		Advance:    func(_ testing.TB, d time.Duration) { store.Advance(d) },
		Operations: 3000, Seed: 1,
	}
	if poll == fastPoll {
		h.slack = 300 * time.Millisecond // most cases wait for what a broken driver never does
	}
	defer r.cleanUp()
	runOn(r, h, only...)
	return r
}

// shared is what the clients of one broken store have in common: what they know of owners.
type shared struct {
	mu      sync.Mutex
	asked   map[string]bool
	granted map[string]driver.Grant
	watched map[string]chan struct{}
}

func newShared() *shared {
	return &shared{asked: map[string]bool{}, granted: map[string]driver.Grant{}, watched: map[string]chan struct{}{}}
}

// asks notes that an owner asks, and reports whether it has asked before.
func (s *shared) asks(owner string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.asked[owner]
	s.asked[owner] = true
	return before
}

// bad is a good driver of which some operations are replaced.
type bad struct {
	wrap.Forward
	*shared
	wrong      func(driver.Mode) bool // in which modes; nil: in all
	try        trying
	enqueue    trying
	wait       trying
	renew      renewing
	release    func(*bad, context.Context, driver.Grant) error
	downgrade  func(*bad, context.Context, driver.Grant) (driver.Grant, error)
	break_     func(*bad, context.Context, string, driver.Token) error
	watch      func(*bad, context.Context, string) (<-chan struct{}, error)
	shows      func(*driver.Info) // changes what Inspect and List show
	caps       func(*driver.Caps)
	afterClose bool // goes on after Close

	stop chan struct{}
	wg   sync.WaitGroup
}

func breaks(spoil func(*bad)) func(driver.Driver, *shared) driver.Driver {
	return func(good driver.Driver, s *shared) driver.Driver {
		b := &bad{
			Forward: wrap.Forward{Driver: good}, shared: s, stop: make(chan struct{}),
			try: (*bad).goodTry, enqueue: (*bad).goodEnqueue, wait: (*bad).goodWait, renew: (*bad).good1,
			release: (*bad).goodRelease, downgrade: (*bad).goodDowngrade, break_: (*bad).goodBreak,
			watch: (*bad).goodWatch, shows: func(*driver.Info) {}, caps: func(*driver.Caps) {},
		}
		spoil(b)
		return b
	}
}

// in returns the mistake in the modes in which it is made, and what is right in the others.
func in[F any](b *bad, m driver.Mode, mistake, right F) F {
	if b.wrong == nil || b.wrong(m) {
		return mistake
	}
	return right
}

func (b *bad) Try(ctx context.Context, r driver.Request) (driver.Grant, error) {
	return in(b, r.Mode, b.try, (*bad).goodTry)(b, ctx, r)
}

func (b *bad) Enqueue(ctx context.Context, r driver.Request) (driver.Grant, error) {
	return in(b, r.Mode, b.enqueue, (*bad).goodEnqueue)(b, ctx, r)
}

func (b *bad) Wait(ctx context.Context, r driver.Request) (driver.Grant, error) {
	return in(b, r.Mode, b.wait, (*bad).goodWait)(b, ctx, r)
}

func (b *bad) Renew(ctx context.Context, grants []driver.Grant) (out []driver.Renewal) {
	for _, g := range grants {
		out = append(out, in(b, g.Mode, b.renew, (*bad).good1)(b, ctx, g))
	}
	return out
}

func (b *bad) Release(ctx context.Context, grants []driver.Grant) (out []error) {
	for _, g := range grants {
		out = append(out, in(b, g.Mode, b.release, (*bad).goodRelease)(b, ctx, g))
	}
	return out
}

func (b *bad) Downgrade(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	return b.downgrade(b, ctx, g)
}

func (b *bad) Break(ctx context.Context, name string, token driver.Token) error {
	mode := driver.Exclusive
	if info, _ := b.Forward.Inspect(ctx, name); len(info.Holders) > 0 {
		mode = info.Holders[0].Mode
	}
	return in(b, mode, b.break_, (*bad).goodBreak)(b, ctx, name, token)
}

func (b *bad) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	return b.watch(b, ctx, name)
}

func (b *bad) Inspect(ctx context.Context, name string) (driver.Info, error) {
	info, err := b.Forward.Inspect(ctx, name)
	b.shows(&info)
	return info, err
}

func (b *bad) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		for info, err := range b.Forward.List(ctx, prefix) {
			b.shows(&info)
			if !yield(info, err) {
				return
			}
		}
	}
}

func (b *bad) Caps() driver.Caps {
	c := b.Driver.Caps()
	b.caps(&c)
	return c
}

func (b *bad) Close() error {
	close(b.stop)
	b.wg.Wait()
	if b.afterClose {
		return nil
	}
	return b.Driver.Close()
}

func (b *bad) goodTry(ctx context.Context, r driver.Request) (driver.Grant, error) {
	return b.Driver.Try(ctx, r)
}

func (b *bad) goodEnqueue(ctx context.Context, r driver.Request) (driver.Grant, error) {
	return b.Forward.Enqueue(ctx, r)
}

func (b *bad) goodWait(ctx context.Context, r driver.Request) (driver.Grant, error) {
	return b.Forward.Wait(ctx, r)
}

func (b *bad) good1(ctx context.Context, g driver.Grant) driver.Renewal {
	return b.Driver.Renew(ctx, []driver.Grant{g})[0]
}

func (b *bad) goodRelease(ctx context.Context, g driver.Grant) error {
	return b.Driver.Release(ctx, []driver.Grant{g})[0]
}

func (b *bad) goodDowngrade(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	return b.Forward.Downgrade(ctx, g)
}

func (b *bad) goodBreak(ctx context.Context, name string, token driver.Token) error {
	return b.Forward.Break(ctx, name, token)
}

func (b *bad) goodWatch(ctx context.Context, name string) (<-chan struct{}, error) {
	return b.Forward.Watch(ctx, name)
}
