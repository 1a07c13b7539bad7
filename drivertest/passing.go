package drivertest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast"
)

// clientTurn: goroutines of one client pass a hold on, if the store reserves tokens
// for that; what others see of it is the same in any case. A hold that comes out of the queue is
// lost by right where this machine stands still for two polls, and then shows nothing.
func clientTurn(t *trial) {
	a, b := t.locks(), t.locks()
	const attempts = 5
	for range attempts {
		if newPassing(t, a, b).shows() || t.Failed() {
			return
		}
	}
	t.Errorf("P2: in each of %d attempts a lease was lost, though it was renewed", attempts)
}

// passing is one attempt.
type passing struct {
	*trial
	a, b   *holdfast.Client
	name   string
	leases chan *holdfast.Lease // nil: there is none
}

func newPassing(t *trial, a, b *holdfast.Client) *passing {
	return &passing{t, a, b, t.freshName(), make(chan *holdfast.Lease, 3)}
}

// lost reports whether a lease was not renewed in time.
func lost(lease *holdfast.Lease) bool {
	err := lease.Err()
	return errors.Is(err, holdfast.ErrLost) && !errors.Is(err, holdfast.ErrBroken)
}

// next is the next lease of the client's goroutines.
func (p *passing) next(after *holdfast.Lease, why string) *holdfast.Lease {
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
		p.Fatalf("P7: nobody was granted the name: %s", why)
		return nil
	}
}

// shows looks at a hold that is passed on, from outside, and reports whether it was there to be seen.
func (p *passing) shows() bool {
	p.Helper()
	ctx, cancel := context.WithCancel(p.ctx)
	var wg sync.WaitGroup
	defer func() { // whoever still waits
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
		return false // it was no hold any more, or the store did not answer for seconds
	} else if err != nil {
		p.Errorf("P4: Release of a live lease: %v", err)
	}
	second := p.next(first, "it was passed on or released")
	return p.asOthersSee(first, second, theirs)
}

// asOthersSee looks at the second hold, which the first was passed on to, or which came after it.
func (p *passing) asOthersSee(first, second *holdfast.Lease, theirs *holdfast.Lock) bool {
	p.Helper()
	if err := p.b.CheckSequencer(p.ctx, second.Sequencer()); err != nil && !lost(second) {
		p.Errorf("P3: the holder's sequencer: %v", err)
	}
	intruder, err := theirs.TryAcquire(p.ctx)
	if err == nil {
		if !lost(second) {
			p.Errorf("P1: a second client was granted a name that was passed on")
		}
		intruder.Release()
	}
	p.eventually("P3: the store has the holder's token, and the next who waits in its queue", func() bool {
		info, err := p.b.Inspect(p.ctx, p.name)
		return lost(second) || err == nil && len(info.Holders) == 1 && info.Holders[0].Token == second.Token() && len(info.Waiters) == 1
	})
	if err := p.b.Break(p.ctx, p.name, first.Token()); !errors.Is(err, holdfast.ErrNotHeld) {
		p.Errorf("P4: a break by the token of the hold before: %v, not ErrNotHeld", err)
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
