package drivertest

import (
	"context"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/memlock"
)

// brokenByRequest are drivers that take a field of a request or a grant wrongly.
var brokenByRequest = []broken{
	{"a write lock is another lock than the mutex", breaks(func(b *bad) { b.try = writeLockApart((*bad).goodTry) }), "read-write/a mutex and a write lock", "P1"},
	{"a mutex is another lock than the write lock", breaks(func(b *bad) { b.try = writeLockApart((*bad).goodTry) }), "read-write/a write lock and a mutex", "P1"},
	{"a read lock is another lock than the mutex", breaks(func(b *bad) { b.try = writeLockApart((*bad).goodTry) }), "read-write/a mutex and a read lock", "P1"},
	{"a mutex is another lock than the read lock", breaks(func(b *bad) { b.try = writeLockApart((*bad).goodTry) }), "read-write/a read lock and a mutex", "P1"},
	{"a write lock queues for another lock than the mutex", breaks(func(b *bad) { b.enqueue = writeLockApart((*bad).goodEnqueue) }), "read-write/a write lock waits behind a mutex", "P1"},
	{"a write lock is another kind than the mutex", breaks(func(b *bad) { b.try = writeLockMismatch }), "read-write/a mutex and a write lock", "P10"},
	{"no grant is contended", breaks(func(b *bad) {
		b.caps = manyTokens
		b.enqueue, b.wait = contended(false, (*bad).goodEnqueue), contended(false, (*bad).goodWait)
	}), "contention/another is queued at the grant", "P8"},
	{"every grant of a try is contended", breaks(func(b *bad) { b.caps, b.try = manyTokens, contended(true, (*bad).goodTry) }), "contention/no other is queued at the grant", "P8"},
	{"every grant of the queue is contended", breaks(func(b *bad) {
		b.caps = manyTokens
		b.enqueue, b.wait = contended(true, (*bad).goodEnqueue), contended(true, (*bad).goodWait)
	}), "contention/no other is queued at the grant", "P8"},
	{"the last grant of the queue is contended", breaks(func(b *bad) {
		b.caps = manyTokens
		b.enqueue, b.wait = contended(true, (*bad).goodEnqueue), contended(true, (*bad).goodWait)
	}), "contention/another is queued at the grant", "P8"},
	{"a block that nobody asked for", breaks(func(b *bad) { b.caps, b.try = manyTokens, alwaysReserves }), "tokens/no more are reserved than were asked for", "P3"},
	{"a release goes on from the first token of the block", breaks(func(b *bad) { b.caps, b.try, b.release = manyTokens, notesToken, releaseOldToken }), "tokens/increase after a block that was used in part", "P3"},
	{"a hand-off goes on from the first token of the block", breaks(func(b *bad) { b.caps, b.try, b.release = manyTokens, notesToken, releaseOldToken }), "tokens/increase over a hand-off after a block that was used in part", "P3"},
	{"a block of the dead is not reserved", breaks(func(b *bad) { b.caps, b.try = manyTokens, claimsTokens }), "tokens/increase after a block whose holder died", "P3"},
}

func (b *bad) goodWait(ctx context.Context, r driver.Request) (driver.Grant, error) {
	return b.Forward.Wait(ctx, r)
}

// writeLockApart keeps read-write locks under names of their own.
func writeLockApart(good asking) asking {
	return func(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
		g, err := good(b, ctx, apart(r))
		g.Request = r
		return g, err
	}
}

// apart gives the name of a read-write lock in a layout that keeps those apart.
func apart(r driver.Request) driver.Request {
	if r.RW {
		r.Name += "/rw"
	}
	return r
}

// TestReadWriteApart: a layout that keeps mutexes and read-write locks apart passes where
// the harness says so.
func TestReadWriteApart(t *testing.T) {
	store := memlock.NewStore(&memlock.Options{Poll: fastPoll})
	wrap := breaks(func(b *bad) {
		b.try, b.enqueue = writeLockApart((*bad).goodTry), writeLockApart((*bad).goodEnqueue)
		b.renew = func(b *bad, ctx context.Context, g driver.Grant) driver.Renewal {
			g.Request = apart(g.Request)
			return b.good1(ctx, g)
		}
		b.release = func(b *bad, ctx context.Context, g driver.Grant) error {
			g.Request = apart(g.Request)
			return b.goodRelease(ctx, g)
		}
	})
	for _, says := range []bool{true, false} {
		r := &recorder{TB: t, name: t.Name()}
		runOn(r, Harness{
			Open:           func(testing.TB) driver.Driver { return wrap(store.Client(), &shared{}) },
			ReadWriteApart: says,
		}, "read-write")
		r.cleanUp()
		if r.Failed() == says {
			t.Errorf("with ReadWriteApart %t were found: %q", says, r.failures)
		}
	}
}

// writeLockMismatch takes a mutex and a write lock for two kinds.
func writeLockMismatch(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, err := b.Driver.Try(ctx, r)
	if err != nil && r.RW {
		err = driver.ErrMismatch
	}
	return g, err
}

// contended says the same of every grant.
func contended(always bool, good asking) asking {
	return func(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
		g, err := good(b, ctx, r)
		g.Contended = always
		return g, err
	}
}
