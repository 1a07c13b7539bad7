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

// load is goroutines that take locks, hold them for a random time and give them
// back, until they are stopped.
type load struct {
	*scene
	ttl     time.Duration
	stop    chan struct{}
	giveUp  context.Context
	ended   sync.WaitGroup
	workers []*worker

	mu    sync.Mutex
	holds []Hold
	whys  []string // of leases that were lost
}

type worker struct {
	*load
	name  string
	lock  *holdfast.Lock
	who   string
	state atomic.Value // what it does, as a string
	done  atomic.Int64 // how often it has had the lock and given it back
}

// start starts n goroutines on each client, of which worker i uses the name
// that name says.
func (s *scene) start(ttl time.Duration, n int, name func(i int) string, clients ...*holdfast.Client) *load {
	giveUp, cancel := context.WithCancel(context.Background())
	l := &load{scene: s, ttl: ttl, stop: make(chan struct{}), giveUp: giveUp}
	for i := range n * len(clients) {
		lock := clients[i/n].Mutex(name(i), &holdfast.Options{TTL: ttl})
		w := &worker{load: l, name: name(i), lock: lock, who: fmt.Sprintf("worker %d of client %d", i, i/n)}
		w.state.Store("starting")
		l.workers = append(l.workers, w)
	}
	for _, w := range l.workers {
		l.ended.Go(w.run)
	}
	s.Cleanup(func() { // a failed test too leaves nobody behind
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

// run is one goroutine. Errors are met with another attempt: during a fault
// there must be some, and after it progress is what counts.
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
			w.lose(err)
		}
		w.done.Add(1)
		time.Sleep(rand.N(5 * time.Millisecond)) // leave the processor to others
	}
}

// over reports whether a channel is closed; nil never is.
func over(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}

// lose notes a lease that its release found lost.
func (w *worker) lose(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.whys = append(w.whys, fmt.Sprintf("%s at %s: %v", w.who, time.Now().Format("05.000"), err))
}

// acquire waits for the lock; sometimes only for a moment.
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

// hold holds the lock, as a rule for a moment, and sometimes until it is lost
// or had to be renewed.
func (w *worker) hold(lease *holdfast.Lease) {
	d := rand.N(3 * time.Millisecond)
	if rand.IntN(100) == 0 {
		d = rand.N(min(w.ttl, brief))
	}
	end := make(chan struct{})
	timer := time.AfterFunc(d, func() { close(end) })
	defer timer.Stop()
	h := Watch(lease, end, nil)
	h.Who = w.who
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holds = append(w.holds, h)
}

// served waits until every worker has had its lock and given it back, from the
// first to the last step after this call: nobody is stuck (P7).
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
					within, w.who, w.name, total, w.state.Load(), time.Now().Format("05.000"), info, err)
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// finish ends the workers and checks what they have seen.
func (l *load) finish() {
	l.Helper()
	l.halt()
	l.ended.Wait()
	l.check(l.holds)
	l.Logf("%d holds, %d of them lost", len(l.holds), len(l.whys))
}

// losses returns which leases were lost so far, and why.
func (l *load) losses() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.whys)
}

// names of workers: one for all, or one each.
func hot(int) string     { return "hot" }
func own(i int) string   { return fmt.Sprintf("own/%d", i) }
func mixed(i int) string { return []string{"hot", "warm", own(i)}[i%3] }
