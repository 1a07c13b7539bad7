package redislock

import (
	"context"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/pause"
	wire "github.com/holdfastlock/holdfast/redislock/internal/redisson"
)

// fair is a redisson of which the mutexes are fair.
type fair struct {
	redisson
	mu      *sync.Mutex
	waiters map[string]*fairWaiter // by owner
}

// The pauses of a waiter that hears of nothing double from the first to the longest. The longest is far below
// two polls, so that the waiter confirms its place in time.
const (
	firstSpin   = 2 * time.Millisecond
	longestSpin = 128 * time.Millisecond
)

// fairWaiter is an owner that has, or had, a place in a queue.
type fairWaiter struct {
	told *wire.Waiter  // nil: there is no way to hear of releases
	spin pause.Backoff // before the next poll, if there is none
}

// Wakes implements driver.Waker: those who wait are told by Wait.
func (f fair) Wakes(string) driver.Wakes { return nil }

// Try implements driver.Driver.
func (f fair) Try(ctx context.Context, req driver.Request) (driver.Grant, error) {
	return f.ask(ctx, req, noPlace)
}

// Enqueue implements driver.Queuer.
func (f fair) Enqueue(ctx context.Context, req driver.Request) (driver.Grant, error) {
	want := placeWanted
	if f.waits(req.Owner) {
		want = placeHad
	}
	g, err := f.ask(ctx, req, want)
	if _, queued := err.(*driver.HeldError); queued {
		f.join(req.Name, req.Owner)
	} else {
		f.forget(req.Owner)
	}
	return g, err
}

// Whether a place is wanted, for fair_take.lua.
const (
	noPlace     = "0"
	placeWanted = "1"
	placeHad    = "2" // and the owner has had one
)

// ask takes the hold or, if that is wanted, a place in the queue.
func (f fair) ask(ctx context.Context, req driver.Request, place string) (driver.Grant, error) {
	if req.Unfair {
		return driver.Grant{Request: req}, driver.ErrUnsupported
	}
	g, err := f.take(ctx, req, millis(f.placeLife()), f.publish, wire.LockChannel(req.Name), place)
	if _, held := err.(*driver.HeldError); held {
		f.contention.note(req.Name, f.clock.Now())
	}
	return g, err
}

// Contended implements driver.ContentionHinter.
func (f fair) Contended(name string) bool { return f.contention.wanted(name, f.clock) }

// placeLife is how long a place lasts from its confirmation on, when it is the first.
func (r redisson) placeLife() time.Duration { return 2 * r.caps.PollInterval() }

// Wait implements driver.Queuer. Whoever is told of a release takes the hold by Enqueue: until then nobody but
// the first of the queue can.
func (f fair) Wait(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := f.alive(ctx); err != nil {
		return driver.Grant{}, err
	}
	f.mu.Lock()
	w := f.waiters[req.Owner]
	if w == nil {
		f.mu.Unlock()
		return driver.Grant{}, driver.ErrHeld // Enqueue tells why there is no place
	}
	woken, spin := w.told.C(), w.spin.Next()
	f.mu.Unlock()
	var spun <-chan time.Time
	if woken == nil {
		timer := time.NewTimer(spin)
		defer timer.Stop()
		spun = timer.C
	}
	select {
	case <-woken:
		return driver.Grant{}, driver.ErrHeld
	case <-spun:
		return driver.Grant{}, driver.ErrHeld
	case <-ctx.Done():
		return driver.Grant{}, ctx.Err()
	case <-f.closed:
		return driver.Grant{}, driver.ErrClosed
	}
}

// waits reports whether the owner has had a place.
func (f fair) waits(owner string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waiters[owner] != nil
}

// join makes the owner, who has a place, one that is told of releases on the channel of this waiter.
func (f fair) join(name, owner string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waiters[owner] == nil {
		told := f.ears.Await(0, wire.LockChannel(name)+":"+wire.Owner(owner))
		f.waiters[owner] = &fairWaiter{told, pause.Backoff{Min: firstSpin, Max: longestSpin}}
	}
}

func (f fair) forget(owner string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if w := f.waiters[owner]; w != nil {
		w.told.Stop()
		delete(f.waiters, owner)
	}
}

// Release implements driver.Driver.
func (f fair) Release(ctx context.Context, grants []driver.Grant) []error {
	for i := range grants {
		f.forget(grants[i].Owner)
	}
	return f.redisson.Release(ctx, grants)
}
