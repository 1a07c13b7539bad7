package drivertest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast"
)

// clientLocalHandOver: the goroutines of one client form a cohort. If the store reserves
// tokens for that, a hold is handed over from one to the next without the store. Other
// clients see the same with and without it. Suppose that this machine stands still for two
// polls: then a hold that came out of the queue is lost by right, which proves nothing, so
// there are several attempts.
func clientLocalHandOver(t *trial) {
	a, b := t.locks(), t.locks()
	const attempts = 5
	for range attempts {
		if newCohort(t, a, b).handsOver() || t.Failed() {
			return
		}
	}
	t.Errorf("P2: in each of %d attempts a lease was lost, though it was renewed", attempts)
}

// cohort is one attempt: three goroutines of client a want a name that b holds.
type cohort struct {
	*trial
	a, b   *holdfast.Client
	name   string
	leases chan *holdfast.Lease // nil: there is none
}

func newCohort(t *trial, a, b *holdfast.Client) *cohort {
	return &cohort{t, a, b, t.freshName(), make(chan *holdfast.Lease, 3)}
}

// lost reports whether a lease was not renewed in time.
func lost(lease *holdfast.Lease) bool {
	err := lease.Err()
	return errors.Is(err, holdfast.ErrLost) && !errors.Is(err, holdfast.ErrBroken)
}

// next returns the lease of whichever goroutine of the cohort gets the lock next.
func (p *cohort) next(after *holdfast.Lease, why string) *holdfast.Lease {
	p.Helper()
	select {
	case lease := <-p.leases:
		if lease == nil {
			p.FailNow()
		}
		if lease.Token() <= after.Token() {
			p.Errorf("P3: token %d after %d", lease.Token(), after.Token())
		}
		return lease
	case <-time.After(3*p.poll + p.slack):
		p.Fatalf("P7: no goroutine was granted the name: %s", why)
		return nil
	}
}

// handsOver lets the first goroutine of the cohort release its lease, and checks the lease
// of the second. It reports false if a lease was lost meanwhile.
func (p *cohort) handsOver() bool {
	p.Helper()
	ctx, cancel := context.WithCancel(p.ctx)
	var wg sync.WaitGroup
	defer func() { // end the goroutines that still wait
		cancel()
		wg.Wait()
		for close(p.leases); ; {
			lease, more := <-p.leases
			if !more {
				return
			}
			if lease != nil {
				lease.Release()
			}
		}
	}()
	theirs := p.b.Mutex(p.name, p.patient())
	held := p.acquire(theirs, "P7: a free name was not granted")
	for range cap(p.leases) {
		wg.Go(func() {
			lease, err := p.a.Mutex(p.name, p.patient()).Acquire(ctx)
			if err != nil && ctx.Err() == nil {
				p.Errorf("P7: Acquire: %v", err)
			}
			p.leases <- lease
		})
	}
	p.eventually("P8: one of the client's goroutines takes a place", func() bool {
		info, err := p.b.Inspect(p.ctx, p.name)
		return err == nil && len(info.Waiters) == 1
	})
	p.released(held)
	first := p.next(held, "it was released")
	if err := first.Release(); errors.Is(err, holdfast.ErrLost) || errors.Is(err, holdfast.ErrUncertain) {
		return false // it was lost, or the store did not answer for seconds
	} else if err != nil {
		p.Errorf("P4: Release of a live lease: %v", err)
	}
	second := p.next(first, "the lease before was released")
	return p.seenByOthers(first, second, theirs)
}

// seenByOthers checks what another client sees of the second lease, whether the first hold
// was handed over to it or it has a hold of its own.
func (p *cohort) seenByOthers(first, second *holdfast.Lease, theirs *holdfast.Lock) bool {
	p.Helper()
	if err := p.b.CheckSequencer(p.ctx, second.Sequencer()); err != nil && !lost(second) {
		p.Errorf("P3: the holder's sequencer: %v", err)
	}
	intruder, err := theirs.TryAcquire(p.ctx)
	if err == nil {
		if !lost(second) {
			p.Errorf("P1: a second client was granted a name that was handed over inside the first")
		}
		intruder.Release()
	}
	told := false
	p.eventually("P3: the store shows the holder's token, and one waiter in its queue", func() bool {
		info, err := p.b.Inspect(p.ctx, p.name)
		told = err == nil && len(info.Holders) == 1 && info.Holders[0].Token == second.Token() && len(info.Waiters) == 1
		return told || lost(second)
	})
	if !told { // the store may still have the first lease's token, and would break what is left of the hold
		second.Release()
		return false
	}
	if err := p.b.Break(p.ctx, p.name, first.Token()); !errors.Is(err, holdfast.ErrNotHeld) {
		p.Errorf("P4: a break by the token of the lease before: %v, not ErrNotHeld", err)
	}
	err = p.b.Break(p.ctx, p.name, second.Token())
	if lost(second) {
		second.Release()
		return false
	}
	if err != nil {
		p.Errorf("P4: a break by the holder's token: %v", err)
	}
	p.next(second, "the hold before was broken").Release()
	if err := second.Release(); !errors.Is(err, holdfast.ErrBroken) {
		p.Errorf("P2: the release of a broken hold returned %v", err)
	}
	return true
}
