package drivertest

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/holdfastlock/holdfast/driver"
)

var historyCases = []testCase{
	{name: "scans", alone: func(t *trial) { t.scanned(t.open, t.operations()) }},
	{name: "linearizable", alone: func(t *trial) { t.linearized(t.open, t.operations(), maxPiece/2) }},
}

func (t *trial) operations() int { return cmp.Or(t.h.Operations, 2000) }

// history is what the workers of one random workload record.
type history struct {
	*trial
	round    uint64       // of several histories of one seed
	budget   atomic.Int64 // operations left
	deadline time.Time    // a slow store ends the workload early
	granted  atomic.Bool  // an exclusive hold, of a scanned history
	sequence atomic.Int64 // numbers calls and returns in their order
	abandon  atomic.Int64 // how many more holds may be left to expire: each closes a name for a TTL
	vain     atomic.Int64 // cycles of a scanned history that got no hold before there was any
	failure  atomic.Value // the last error of a try that got nothing

	mu     sync.Mutex
	holds  []held
	places []place
	ops    []porcupine.Operation
}

func (t *trial) newHistory(operations int) *history {
	h := &history{trial: t, deadline: time.Now().Add(20*time.Second + time.Duration(operations)*5*time.Millisecond)}
	h.budget.Store(int64(operations))
	h.abandon.Store(3)
	return h
}

// spend takes one operation from the budget.
func (h *history) spend() bool {
	return h.budget.Add(-1) >= 0 && time.Now().Before(h.deadline) && !h.Failed()
}

// goOn is spend of a scanned history, which goes on until it has an exclusive hold, or until the time of the case is
// over: without one nothing is known of the store.
func (h *history) goOn() bool {
	return h.spend() || !h.granted.Load() && h.ctx.Err() == nil && !h.Failed()
}

// crew opens n clients of a workload.
func crew(open func() driver.Driver, n int) []driver.Driver {
	ds := make([]driver.Driver, n)
	for i := range ds {
		ds[i] = open()
	}
	return ds
}

// work starts the workers, two on each client, each with its own random numbers.
func (h *history) work(ds []driver.Driver, do func(*worker)) {
	var wg sync.WaitGroup
	for i := range 2 * len(ds) {
		w := &worker{
			history: h, d: ds[i%len(ds)], other: ds[(i+1)%len(ds)], id: i,
			Rand: rand.New(rand.NewPCG(h.seed+h.round, uint64(i))),
		}
		wg.Go(func() { do(w) })
	}
	wg.Wait()
}

// worker is one goroutine of a workload.
type worker struct {
	*history
	*rand.Rand
	d, other driver.Driver
	id       int
	asked    time.Duration // the pause that the store has asked for, because others split the votes for example
}

// pause sleeps for a random time.
func (w *worker) pause(most time.Duration) { time.Sleep(time.Duration(w.IntN(int(most)))) }

// scanned runs a workload of all operations, waiters that give up, holds that expire or are broken, semaphores and
// readers among them, and scans its history.
func (t *trial) scanned(open func() driver.Driver, operations int) {
	h := t.newHistory(operations)
	h.work(crew(open, cmp.Or(t.h.Clients, 4)), func(w *worker) {
		for w.goOn() {
			w.cycle()
		}
	})
	t.Logf("%d of %d operations: %d holds, %d places in queues, seed %d",
		operations-int(max(h.budget.Load(), 0)), operations, len(h.holds), len(h.places), t.seed)
	if !h.granted.Load() {
		t.Errorf("P7: a random history of %d operations got no exclusive hold (seed %d), but %v", operations, t.seed, h.failure.Load())
	}
	found := scanIntervals(h.holds)
	if t.caps.Fencing && len(found) == 0 {
		found = append(found, scanTokens(h.holds)...)
	}
	if t.caps.Fair {
		found = append(found, scanOrder(h.places)...)
	}
	for _, f := range found[:min(len(found), 5)] {
		t.Errorf("%s (seed %d, one of %d failures)", f, t.seed, len(found))
	}
}

// slowness is by how much longer than usual the workers of a scanned history wait, and their holds last. It grows
// while the store is so slow that many tries get nothing, until something is granted.
func (h *history) slowness() time.Duration { return 1 << min(h.vain.Load()/16, 6) }

// cycle tries to take one hold, renews it a few times and releases it.
func (w *worker) cycle() {
	r := w.random()
	r.TTL = min(r.TTL*w.slowness(), max(r.TTL, w.long))
	take := w.tryOnce
	if w.can(opQueue) && w.IntN(4) > 0 {
		take = w.acquire
	}
	g, err := take(r)
	if err != nil {
		if !w.granted.Load() {
			w.vain.Add(1)
		}
		w.pause(max(w.asked, 5*time.Millisecond*w.slowness()))
		w.asked = 0
		return
	}
	hold := &held{Request: r, token: g.Token, from: w.clock.Now(), until: g.Since.Add(g.Valid)}
	for range w.IntN(3) {
		w.pause(time.Millisecond)
		if !w.spend() {
			break
		}
		renewal := w.renew1(w.d, g)
		left := hold.until.Sub(w.clock.Now())
		switch {
		case left <= 0:
			// A lease that is over stays so, whatever the store says: if the request arrives a second time after the
			// hold has ended, its owner has the name again, with another token than it knows.
		case renewal.Err == nil:
			hold.until = renewal.Since.Add(renewal.Valid)
		case driver.Gone(renewal.Err): // nobody else breaks holds here
			w.Errorf("P1: a hold was gone (%v) while it was trusted for %v more (seed %d)",
				renewal.Err, left, w.seed)
		}
	}
	w.giveUp(hold, g)
	if hold.Mode == driver.Exclusive {
		w.granted.Store(true)
	}
	w.mu.Lock()
	w.holds = append(w.holds, *hold)
	w.mu.Unlock()
}

// random is a request on one of three names: a mutex, a read-write lock, a semaphore.
func (w *worker) random() driver.Request {
	r := w.brief(w.request())
	switch n := w.IntN(10); {
	case n >= 8 && w.caps.Slots:
		r.Name, r.Mode, r.Slots, r.Permits = w.name+"/slots", driver.Slot, 4, 1+w.IntN(3)
	case n >= 5:
		r.Name += "/rw"
		if w.caps.Shared && w.IntN(3) > 0 {
			r.Mode = driver.Shared
		}
	}
	return r
}

func (w *worker) tryOnce(r driver.Request) (driver.Grant, error) {
	g, err := w.d.Try(w.ctx, r)
	if err == nil {
		return g, nil
	}
	if held, ok := errors.AsType[*driver.HeldError](err); ok {
		w.asked = held.Poll
	}
	w.failure.Store(err.Error())
	switch {
	case errors.Is(err, driver.ErrHeld):
	case errors.Is(err, driver.ErrUncertain), errors.Is(err, context.DeadlineExceeded), w.h.FaultBetween != nil:
		w.letGo(driver.Grant{Request: r, Handle: g.Handle})
	default:
		w.Errorf("P7: a request of a random history failed: %v (seed %d)", err, w.seed)
	}
	return g, err
}

// letGo withdraws, as package holdfast does, until the store confirms it.
func (w *worker) letGo(g driver.Grant) {
	g.MinHold = 0
	for w.ctx.Err() == nil {
		if err := w.release1(w.d, g); err == nil || driver.Gone(err) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// acquire waits in the queue for a random time, and records its place. More waiters wait for longer, or hardly any
// would be served.
func (w *worker) acquire(r driver.Request) (driver.Grant, error) {
	patience := 100 * time.Millisecond * w.slowness()
	if w.h.Clients > 4 {
		patience = 10 * time.Second
	}
	ctx, cancel := context.WithTimeout(w.ctx, time.Duration(w.IntN(int(patience))))
	defer cancel()
	p := place{name: r.Name, owner: r.Owner, asked: w.clock.Now()}
	last, gap := p.asked, time.Duration(0)
	known := driver.Grant{Request: r} // to the store, maybe
	var g driver.Grant
	err := context.DeadlineExceeded // the history is over
	for w.goOn() {
		called := w.clock.Now()
		g, err = ops(w.d).Enqueue(ctx, r)
		now := w.clock.Now()
		known.Handle = cmp.Or(g.Handle, known.Handle)
		known.Stray = known.Stray || errors.Is(err, driver.ErrUncertain)
		gap = max(gap, now.Sub(last))
		if err == nil || errors.Is(err, driver.ErrHeld) {
			last = called // the store has answered a request that was sent then
		}
		if errors.Is(err, driver.ErrHeld) {
			if p.queued == 0 {
				p.queued = now
			}
			poll, stop := context.WithTimeout(ctx, w.poll/2)
			g, err = ops(w.d).Wait(poll, r)
			stop()
			gap = max(gap, w.clock.Now().Sub(last))
		}
		if err == nil || ctx.Err() != nil {
			break
		}
		if w.h.FaultBetween != nil && !errors.Is(err, driver.ErrHeld) && !errors.Is(err, context.DeadlineExceeded) {
			w.pause(w.poll / 8) // or a fault uses up the operations
		}
	}
	if err != nil {
		w.failure.Store(err.Error())
		w.letGo(known)
		return g, err
	}
	g.Stray = known.Stray
	p.granted = w.clock.Now()
	faulty := w.h.FaultBetween != nil && w.h.FaultBetween(p.asked, p.granted)
	if p.queued != 0 && !faulty && r.Mode == driver.Exclusive && p.granted < g.Since.Add(g.Valid) && gap < min(2*w.poll, r.TTL) {
		w.mu.Lock()
		w.places = append(w.places, p)
		w.mu.Unlock()
	}
	return g, nil
}

// giveUp ends a hold: mostly by a release, sometimes by a break, a withdrawal or its TTL.
func (w *worker) giveUp(hold *held, g driver.Grant) {
	end := func() { hold.until = min(hold.until, w.clock.Now()) }
	w.budget.Add(-1)
	switch n := w.IntN(100); {
	case n < 3 && hold.TTL == w.ttl && w.abandon.Add(-1) >= 0: // as if the process died
	case n < 8 && w.can(opOperator) && g.Token != 0 && g.Mode == driver.Exclusive:
		end()
		if err := ops(w.other).Break(w.ctx, g.Name, g.Token); err != nil {
			w.letGo(g)
		}
	case n < 12: // as if the answer to the request had been lost
		end()
		g.Token = 0
		w.letGo(g)
	default:
		end()
		if err := w.release1(w.d, g); err != nil && !driver.Gone(err) {
			w.letGo(g)
		}
	}
}

// linearized runs a workload of exclusive holds that do not expire, with renewals and releases by their owners and by
// others, and checks its history piece by piece.
func (t *trial) linearized(open func() driver.Driver, operations, piece int) {
	clients := crew(open, min(cmp.Or(t.h.Clients, 4), 4))
	for round := uint64(0); operations > 0 && !t.Failed(); round++ {
		h := t.newHistory(min(operations, piece))
		h.round = round
		operations -= piece
		name := t.freshName()
		h.work(clients, func(w *worker) {
			for w.spend() {
				w.contend(name)
			}
		})
		if wrong := checkLinear(h.ops, t.can(opQueue)); wrong != "" {
			t.Errorf("%s (%d operations, seed %d)", wrong, len(h.ops), t.seed)
		}
	}
}

// contend tries once. If it is granted the hold, it renews and releases it, and in between tries to do so as another
// owner.
func (w *worker) contend(name string) {
	r := named(w.request(), name)
	var g driver.Grant
	tried := w.note(actTry, r, func() (out reply, err error) {
		g, err = w.d.Try(w.ctx, r)
		return reply{done: err == nil, token: g.Token}, err
	})
	stranger := driver.Grant{Request: r, Token: g.Token}
	stranger.Owner = newOwner()
	switch {
	case tried.unknown:
		w.let(driver.Grant{Request: r, Handle: g.Handle})
		return
	case !tried.done:
		w.pause(time.Millisecond / 2)
		return
	}
	for range w.IntN(3) {
		one := g
		if w.IntN(4) == 0 {
			one = stranger
		}
		w.renewed(one)
	}
	if w.IntN(4) == 0 {
		w.released(stranger)
	}
	if out := w.released(g); out.unknown {
		w.let(g)
	} else if w.IntN(4) == 0 {
		w.released(g)
		w.renewed(g)
	}
}

func (w *worker) renewed(g driver.Grant) {
	w.note(actRenew, g.Request, func() (reply, error) {
		err := w.renew1(w.d, g).Err
		return reply{done: err == nil}, err
	})
}

func (w *worker) released(g driver.Grant) reply {
	return w.note(actRelease, g.Request, func() (reply, error) {
		err := w.release1(w.d, g)
		return reply{done: err == nil}, err
	})
}

// let withdraws until the store confirms it; what it does counts as one operation each time.
func (w *worker) let(g driver.Grant) {
	for w.ctx.Err() == nil && w.released(g).unknown {
		time.Sleep(time.Millisecond)
	}
}

// note runs one operation and writes it down.
func (w *worker) note(a action, r driver.Request, do func() (reply, error)) reply {
	w.budget.Add(-1)
	call := w.sequence.Add(1)
	out, err := do()
	if err != nil && !errors.Is(err, driver.ErrHeld) && !driver.Gone(err) {
		out = reply{unknown: true}
	}
	op := porcupine.Operation{
		ClientId: w.id, Input: step{a, r.Owner}, Output: out,
		Call: call, Return: w.sequence.Add(1),
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ops = append(w.ops, op)
	return out
}
