package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast"
)

// load is goroutines that acquire locks, hold them for a random time and release them, until they are stopped.
type load struct {
	*scene
	ttl     time.Duration
	goOn    context.Context // until halt is called
	halt    func()
	giveUp  context.Context // after a failed test too
	ended   sync.WaitGroup
	workers []*worker

	mu    sync.Mutex
	holds []Hold
	lost  int // leases
}

type worker struct {
	*load
	name  string
	lock  *holdfast.Lock
	title string       // describes the worker to people
	done  atomic.Int64 // how often it has released the lock
}

// start starts n goroutines on each client. Worker i locks the name that name returns for i.
func (s *scene) start(ttl time.Duration, n int, name func(i int) string, clients ...*holdfast.Client) *load {
	l := &load{scene: s, ttl: ttl}
	l.goOn, l.halt = context.WithCancel(context.Background())
	giveUp, cancel := context.WithCancel(context.Background())
	l.giveUp = giveUp
	for i := range n * len(clients) {
		w := &worker{load: l, name: name(i), title: fmt.Sprintf("worker %d of client %d", i, i/n)}
		w.lock = clients[i/n].Mutex(w.name, &holdfast.Options{TTL: ttl})
		l.workers = append(l.workers, w)
		l.ended.Go(w.run)
	}
	s.Cleanup(func() {
		cancel()
		l.halt()
		l.ended.Wait()
	})
	return l
}

// run is one worker. After an error it tries again: during a fault there must be errors, and what is checked is that
// every worker is served after the fault.
func (w *worker) run() {
	for w.goOn.Err() == nil {
		lease := w.acquire()
		if lease == nil {
			time.Sleep(time.Millisecond)
			continue
		}
		w.hold(lease)
		if err := lease.Release(); errors.Is(err, holdfast.ErrLost) {
			w.mu.Lock()
			w.lost++
			w.mu.Unlock()
		}
		w.done.Add(1)
		time.Sleep(rand.N(5 * time.Millisecond)) // leave the processor to others
	}
}

// acquire waits for the lock, sometimes only for a moment, and returns nil if it did not get it.
func (w *worker) acquire() *holdfast.Lease {
	ctx := w.giveUp
	if rand.IntN(5) == 0 {
		impatient, cancel := context.WithTimeout(ctx, rand.N(30*time.Millisecond))
		defer cancel()
		ctx = impatient
	}
	lease, err := w.lock.Acquire(ctx)
	if err != nil {
		return nil
	}
	return lease
}

// hold holds the lock: mostly for a moment, sometimes for so long that it must be renewed or is lost.
func (w *worker) hold(lease *holdfast.Lease) {
	d := rand.N(3 * time.Millisecond)
	if rand.IntN(100) == 0 {
		d = rand.N(min(w.ttl, brief))
	}
	end := make(chan struct{})
	timer := time.AfterFunc(d, func() { close(end) })
	defer timer.Stop()
	h := Watch(lease, end, nil)
	h.Who = w.title
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holds = append(w.holds, h)
}

// served waits until every worker has acquired its lock and released it, both after this call (P7). It fails the test
// if a worker is stuck.
func (l *load) served(within time.Duration) {
	l.Helper()
	before := make([]int64, len(l.workers))
	for i, w := range l.workers {
		before[i] = w.done.Load()
	}
	end := time.Now().Add(within)
	for i, w := range l.workers {
		for ; w.done.Load() < before[i]+2; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				info, err := l.client(l.addr).Inspect(context.Background(), w.name)
				l.Fatalf("P7: within %v %s was not served on %q; the store shows %+v (%v)", within, w.title, w.name, info, err)
			}
		}
	}
}

// finish ends the workers and checks their holds.
func (l *load) finish() {
	l.Helper()
	l.halt()
	l.ended.Wait()
	l.check(l.holds)
	l.Logf("%d holds, %d of them lost", len(l.holds), l.lost)
}

// The names that workers lock: one for all, one for each, or some of both.
func hot(int) string     { return "hot" }
func own(i int) string   { return fmt.Sprintf("own/%d", i) }
func mixed(i int) string { return []string{"hot", "warm", own(i)}[i%3] }
