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
	sequence atomic.Int64 // numbers calls and returns in their order
	abandon  atomic.Int64 // how many more holds may be left to expire: each closes a name for a TTL

	mu     sync.Mutex
	holds  []held
	places []place
	ops    []porcupine.Operation
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
}

// scanned runs a workload of all operations, waiters that give up, holds that expire or are
// broken, semaphores and readers among them, and scans its history.
func (t *trial) scanned(open func() driver.Driver, operations int) {
	h := t.newHistory(operations)
	h.work(t.crew(open, cmp.Or(t.h.Clients, 4)), func(w *worker) {
		for w.spend() {
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
		t.Errorf("P7: a random history of %d operations got no exclusive hold (seed %d)",
			operations, t.seed)
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

// cycle tries to take one hold, renews it a few times and releases it.
func (w *worker) cycle() {
	r := w.random()
	var hold *held
	if w.caps.Ops.Has(driver.OpQueue) && w.IntN(4) > 0 {
		hold = w.acquire(r)
	} else {
		hold = w.tryOnce(r)
	}
	if hold == nil {
		time.Sleep(time.Duration(w.IntN(int(5 * time.Millisecond))))
		return
	}
	g := driver.Grant{Request: r, Token: hold.token}
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

func (w *worker) tryOnce(r driver.Request) *held {
	g, err := w.d.Try(w.ctx, r)
	if err != nil {
		w.settle(r, err)
		return nil
	}
	return &held{Request: r, token: g.Token, from: w.clock.Now(), until: g.Since.Add(g.Valid)}
}

// settle withdraws a request whose outcome is not known, and fails the test for an error that
// a store without faults does not return.
func (w *worker) settle(r driver.Request, err error) {
	switch {
	case errors.Is(err, driver.ErrUncertain), errors.Is(err, context.DeadlineExceeded):
		w.withdrawn(r)
	case errors.Is(err, driver.ErrHeld):
	case w.h.FaultBetween != nil:
		w.withdrawn(r)
	default:
		w.Errorf("P7: a request of a random history failed: %v (seed %d)", err, w.seed)
	}
}

// withdrawn withdraws until the store confirms it.
func (w *worker) withdrawn(r driver.Request) {
	for w.ctx.Err() == nil {
		if err := w.release1(w.d, driver.Grant{Request: r}); err == nil || driver.Gone(err) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// acquire waits in the queue for a random time, and records its place. Suppose
// a hundred wait for as long as four do: then hardly anybody is served before it gives up, and
// the history tells nothing. So a crowd waits for longer.
func (w *worker) acquire(r driver.Request) *held {
	q, _ := driver.As[driver.Queuer](w.d, driver.OpQueue)
	patience := 100 * time.Millisecond
	if w.h.Clients > 4 {
		patience = 10 * time.Second
	}
	ctx, cancel := context.WithTimeout(w.ctx, time.Duration(w.IntN(int(patience))))
	defer cancel()
	p := place{name: r.Name, owner: r.Owner, asked: w.clock.Now()}
	last, gap := p.asked, time.Duration(0)
	var g driver.Grant
	var err error
	for w.spend() {
		called := w.clock.Now()
		g, err = q.Enqueue(ctx, r)
		now := w.clock.Now()
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
	if err != nil || g.Owner == "" {
		w.withdrawn(r)
		return nil
	}
	hold := &held{Request: r, token: g.Token, from: w.clock.Now(), until: g.Since.Add(g.Valid)}
	p.granted = hold.from
	faulty := w.h.FaultBetween != nil && w.h.FaultBetween(p.asked, p.granted)
	if p.queued != 0 && !faulty && r.Mode == driver.Exclusive && hold.from < hold.until && gap < min(2*w.poll, r.TTL) {
		w.mu.Lock()
		w.places = append(w.places, p)
		w.mu.Unlock()
	}
	return hold
}

// giveUp ends a hold: mostly by a release, sometimes by a break, a withdrawal or its TTL.
func (w *worker) giveUp(hold *held, g driver.Grant) {
	end := func() { hold.until = min(hold.until, w.clock.Now()) }
	w.budget.Add(-1)
	switch n := w.IntN(100); {
	case n < 3 && w.abandon.Add(-1) >= 0: // as if the process died
	case n < 8 && w.caps.Ops.Has(driver.OpBreak) && g.Token != 0 && g.Mode == driver.Exclusive:
		end()
		if err := w.break1(w.other, g.Name, g.Token); err != nil {
			w.withdrawn(g.Request)
		}
	case n < 12:
		end()
		w.withdrawn(g.Request)
	default:
		end()
		if err := w.release1(w.d, g); err != nil && !driver.Gone(err) {
			w.withdrawn(g.Request)
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
		strict := t.caps.Ops.Has(driver.OpQueue)
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
	stranger := r
	stranger.Owner = newOwner()
	switch {
	case tried.unknown:
		w.let(r)
		return
	case !tried.done:
		time.Sleep(time.Duration(w.IntN(int(time.Millisecond / 2))))
		return
	}
	for range w.IntN(3) {
		mine := r
		if w.IntN(4) == 0 {
			mine = stranger
		}
		w.renewed(mine, g.Token)
	}
	if w.IntN(4) == 0 {
		w.released(stranger, g.Token)
	}
	if out := w.released(r, g.Token); out.unknown {
		w.let(r)
	} else if w.IntN(4) == 0 {
		w.released(r, g.Token)
		w.renewed(r, g.Token)
	}
}

func (w *worker) renewed(r driver.Request, token driver.Token) {
	w.note(actRenew, r, func() (reply, error) {
		err := w.renew1(w.d, driver.Grant{Request: r, Token: token}).Err
		return reply{done: err == nil}, err
	})
}

func (w *worker) released(r driver.Request, token driver.Token) reply {
	return w.note(actRelease, r, func() (reply, error) {
		err := w.release1(w.d, driver.Grant{Request: r, Token: token})
		return reply{done: err == nil}, err
	})
}

// let withdraws until the store confirms it; what it does counts as one
// operation each time.
func (w *worker) let(r driver.Request) {
	for w.ctx.Err() == nil && w.released(r, 0).unknown {
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
