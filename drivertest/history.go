package drivertest

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/holdfastlock/holdfast/driver"
)

var historyCases = []testCase{
	{name: "scans", run: func(t *trial) { t.scanned(t.open, t.operations()) }},
	{name: "linearizable", run: func(t *trial) { t.linearized(t.open, t.operations(), maxPiece/2) }},
}

func (t *trial) operations() int {
	if t.h.Operations > 0 {
		return t.h.Operations
	}
	return 2000
}

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

	mu     sync.Mutex
	holds  []held
	places []place
	ops    []porcupine.Operation
	errs   map[string]int // of tries that got nothing, by their texts: the first few
}

// noteError remembers why a try got nothing.
func (h *history) noteError(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.errs == nil {
		h.errs = map[string]int{}
	}
	if text := err.Error(); h.errs[text] > 0 || len(h.errs) < 20 {
		h.errs[text]++
	}
}

func (t *trial) newHistory(operations int) *history {
	h := &history{trial: t,
		deadline: time.Now().Add(20*time.Second + time.Duration(operations)*5*time.Millisecond)}
	h.budget.Store(int64(operations))
	h.abandon.Store(3)
	return h
}

// spend takes one operation from the budget.
func (h *history) spend() bool {
	return h.budget.Add(-1) >= 0 && time.Now().Before(h.deadline) && !h.Failed()
}

// goOn is spend of a scanned history. Suppose that the machine is so busy that, beside the faults, the
// store has granted no exclusive hold yet when the time or the operations are used up. Then nothing is
// known of it, so the history goes on, until the time of the case is over.
func (h *history) goOn() bool {
	return h.spend() || !h.granted.Load() && h.ctx.Err() == nil && !h.Failed()
}

// crew opens n clients of a workload.
func (t *trial) crew(open func() driver.Driver, n int) []driver.Driver {
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

// scanned runs a workload of all operations, waiters that give up, holds that expire or are
// broken, semaphores and readers among them, and scans its history.
func (t *trial) scanned(open func() driver.Driver, operations int) {
	h := t.newHistory(operations)
	h.work(t.crew(open, cmp.Or(t.h.Clients, 4)), func(w *worker) {
		for w.goOn() {
			w.cycle()
		}
	})
	exclusive := 0
	for _, hold := range h.holds {
		if hold.Mode == driver.Exclusive {
			exclusive++
		}
	}
	t.Logf("%d of %d operations: %d holds (%d exclusive), %d places in queues, seed %d",
		operations-int(max(h.budget.Load(), 0)), operations, len(h.holds), exclusive, len(h.places), t.seed)
	if exclusive == 0 {
		t.Errorf("P7: a random history of %d operations got no exclusive hold (seed %d), but %v",
			operations, t.seed, h.errs)
	}
	found := scanIntervals(h.holds)
	if t.caps.Fencing && len(found) == 0 {
		found = append(found, scanTokens(h.holds)...)
	}
	if t.caps.Fair {
		found = append(found, scanOrder(h.places)...)
	}
	for i, f := range found {
		if i == 5 {
			promise, _, _ := strings.Cut(f, ":")
			t.Errorf("%s: %d more failures of this history are not shown", promise, len(found)-i)
			break
		}
		t.Errorf("%s (seed %d)", f, t.seed)
	}
}

// slowness is by how much longer than usual the workers of a scanned history wait, and their holds last. It is 1,
// unless the store is so slow that many tries have got nothing: suppose that every vote of a quorum is synced to a disk on
// which that takes longer than a worker waits. Then it grows until something is granted, and stays.
func (h *history) slowness() time.Duration {
	return 1 << min(h.vain.Load()/16, 6)
}

// cycle tries to take one hold, renews it a few times and releases it.
func (w *worker) cycle() {
	r := w.random()
	r.TTL = min(r.TTL*w.slowness(), max(r.TTL, w.long))
	take := w.tryOnce
	if w.can.has(opQueue) && w.IntN(4) > 0 {
		take = w.acquire
	}
	g, err := take(r)
	if err != nil {
		if !w.granted.Load() {
			w.vain.Add(1)
		}
		time.Sleep(time.Duration(w.IntN(int(max(w.asked, 5*time.Millisecond*w.slowness())))))
		w.asked = 0
		return
	}
	hold := &held{Request: r, token: g.Token, from: w.clock.Now(), until: g.Since.Add(g.Valid)}
	for range w.IntN(3) {
		time.Sleep(time.Duration(w.IntN(int(time.Millisecond))))
		if !w.spend() {
			break
		}
		renewal := w.renew1(w.d, g)
		left := hold.until.Sub(w.clock.Now())
		switch {
		case left <= 0:
			// A lease that is over stays so, whatever the store says. Suppose the hold has ended there, another
			// was granted the name, and then the request for this one arrived a second time: its owner has the
			// name again, with another token than it knows.
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

// random is a request on one of three names: a mutex, a read-write lock, a
// semaphore.
func (w *worker) random() driver.Request {
	r := w.brief()
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
	if err != nil {
		var held *driver.HeldError
		if errors.As(err, &held) {
			w.asked = held.Poll
		}
		w.noteError(err)
		w.settle(driver.Grant{Request: r, Handle: g.Handle}, err)
	}
	return g, err
}

// settle withdraws a request whose outcome is not known, and fails the test for an error that
// a store without faults does not return.
func (w *worker) settle(g driver.Grant, err error) {
	switch {
	case errors.Is(err, driver.ErrUncertain), errors.Is(err, context.DeadlineExceeded):
		w.withdrawn(g)
	case errors.Is(err, driver.ErrHeld):
	case w.h.FaultBetween != nil:
		w.withdrawn(g)
	default:
		w.Errorf("P7: a request of a random history failed: %v (seed %d)", err, w.seed)
	}
}

// withdrawn withdraws, as package holdfast does, until the store confirms it.
func (w *worker) withdrawn(g driver.Grant) {
	g.MinHold = 0
	for w.ctx.Err() == nil {
		if err := w.release1(w.d, g); err == nil || driver.Gone(err) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// acquire waits in the queue for a random time, and records its place. Suppose
// a hundred wait for as long as four do: then hardly anybody is served before it gives up, and
// the history tells nothing. So a crowd waits for longer.
func (w *worker) acquire(r driver.Request) (driver.Grant, error) {
	q, _ := driver.As[driver.Queuer](w.d)
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
		g, err = q.Enqueue(ctx, r)
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
			g, err = q.Wait(poll, r)
			stop()
			gap = max(gap, w.clock.Now().Sub(last))
		}
		if err == nil || ctx.Err() != nil {
			break
		}
		if w.h.FaultBetween != nil && !errors.Is(err, driver.ErrHeld) && !errors.Is(err, context.DeadlineExceeded) {
			time.Sleep(time.Duration(w.IntN(int(w.poll / 8)))) // or a fault uses up the operations
		}
	}
	if err != nil {
		w.noteError(err)
		w.withdrawn(known)
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
	case n < 8 && w.can.has(opOperator) && g.Token != 0 && g.Mode == driver.Exclusive:
		end()
		if err := w.break1(w.other, g.Name, g.Token); err != nil {
			w.withdrawn(g)
		}
	case n < 12: // as if the answer to the request had been lost
		end()
		g.Token = 0
		w.withdrawn(g)
	default:
		end()
		if err := w.release1(w.d, g); err != nil && !driver.Gone(err) {
			w.withdrawn(g)
		}
	}
}

// linearized runs a workload of exclusive holds that do not expire, with renewals and
// releases by their owners and by others, and checks its history piece by piece.
func (t *trial) linearized(open func() driver.Driver, operations, piece int) {
	clients := t.crew(open, min(cmp.Or(t.h.Clients, 4), 4))
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
		strict := t.can.has(opQueue)
		if wrong := checkLinear(h.ops, strict); wrong != "" {
			t.Errorf("%s (%d operations, seed %d)", wrong, len(h.ops), t.seed)
		}
	}
}

// contend tries once. If it is granted the hold, it renews and releases it, and in between
// tries to do so as another owner.
func (w *worker) contend(name string) {
	r := w.request()
	r.Name = name
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
		time.Sleep(time.Duration(w.IntN(int(time.Millisecond / 2))))
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

// let withdraws until the store confirms it; what it does counts as one
// operation each time.
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
		ClientId: w.id, Input: step{a, r.Name, r.Owner}, Output: out,
		Call: call, Return: w.sequence.Add(1),
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ops = append(w.ops, op)
	return out
}
