package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast"
)

// load is goroutines that acquire locks, hold them for a random time and release them, until
// they are stopped.
type load struct {
	*scene
	ttl     time.Duration
	stop    chan struct{}
	giveUp  context.Context
	ended   sync.WaitGroup
	workers []*worker

	mu    sync.Mutex
	holds []Hold
	lost  []string // describes each lease that was lost
}

type worker struct {
	*load
	name  string
	lock  *holdfast.Lock
	title string       // describes the worker to people
	state atomic.Value // a string: what the worker does now
	done  atomic.Int64 // how often it has released the lock
}

// start starts n goroutines on each client. Worker i locks the name that name returns for i.
func (s *scene) start(ttl time.Duration, n int, name func(i int) string, clients ...*holdfast.Client) *load {
	giveUp, cancel := context.WithCancel(context.Background())
	l := &load{scene: s, ttl: ttl, stop: make(chan struct{}), giveUp: giveUp}
	for i := range n * len(clients) {
		lock := clients[i/n].Mutex(name(i), &holdfast.Options{TTL: ttl})
		w := &worker{load: l, name: name(i), lock: lock,
			title: fmt.Sprintf("worker %d of client %d", i, i/n)}
		w.state.Store("starting")
		l.workers = append(l.workers, w)
	}
	for _, w := range l.workers {
		l.ended.Go(w.run)
	}
	s.Cleanup(func() { // after a failed test too
		cancel()
		l.halt()
		l.ended.Wait()
	})
	return l
}

func (l *load) halt() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
}

// run is one worker. After an error it tries again: during a fault there must be errors, and
// what is checked is that every worker is served after the fault.
func (w *worker) run() {
	for !over(w.stop) {
		w.state.Store("waiting since " + time.Now().Format("05.000"))
		lease := w.acquire()
		if lease == nil {
			time.Sleep(time.Millisecond)
			continue
		}
		w.state.Store("holding since " + time.Now().Format("05.000"))
		w.hold(lease)
		w.state.Store("releasing since " + time.Now().Format("05.000"))
		if err := lease.Release(); errors.Is(err, holdfast.ErrLost) {
			w.noteLoss(err)
		}
		w.done.Add(1)
		time.Sleep(rand.N(5 * time.Millisecond)) // leave the processor to others
	}
}

// over reports whether a channel is closed. A nil channel is not.
func over(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}

// noteLoss records that a release found its lease lost.
func (w *worker) noteLoss(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = append(w.lost, fmt.Sprintf("%s at %s: %v", w.title, time.Now().Format("05.000"), err))
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

// hold holds the lock: mostly for a moment, sometimes for so long that it must be renewed or
// is lost.
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

// served waits until every worker has acquired its lock and released it, both after this call
// (P7). It fails the test if a worker is stuck.
func (l *load) served(within time.Duration) {
	l.Helper()
	before := make([]int64, len(l.workers))
	for i, w := range l.workers {
		before[i] = w.done.Load()
	}
	end := time.Now().Add(within)
	for i, w := range l.workers {
		for w.done.Load() < before[i]+2 {
			if time.Now().After(end) {
				total := int64(0)
				for i, w := range l.workers {
					total += w.done.Load() - before[i]
				}
				info, err := l.client(l.addr).Inspect(context.Background(), w.name)
				l.Fatalf("P7: within %v %s was not served on %q, and others %d times; it is %s, now is %s, and the store shows %+v (%v)",
					within, w.title, w.name, total, w.state.Load(), time.Now().Format("05.000"), info, err)
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// finish ends the workers and checks their holds.
func (l *load) finish() {
	l.Helper()
	l.halt()
	l.ended.Wait()
	l.check(l.holds)
	l.Logf("%d holds, %d of them lost", len(l.holds), len(l.lost))
}

// losses returns the leases that were lost so far, and why.
func (l *load) losses() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lost)
}

// The names that workers lock: one for all, one for each, or some of both.
func hot(int) string     { return "hot" }
func own(i int) string   { return fmt.Sprintf("own/%d", i) }
func mixed(i int) string { return []string{"hot", "warm", own(i)}[i%3] }
