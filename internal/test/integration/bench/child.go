package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// task is what one process measures, alone or together with other processes.
type task struct {
	Store, Peer, Addr string
	Kind              kind
	Name              string // that all want who do not have one each
	Workers, Clients  int    // of this process; worker i uses client i, or shares one
	Process           int    // the number of this one
	Stay              time.Duration
	Arena             string        // the file of the memory that the processes share
	TTL               time.Duration // of a holder that is going to be killed, see crash; else 0
}

// result is what was measured. Figures that the workload does not measure are zero.
type result struct {
	Holds []int64         // of each worker
	Waits []time.Duration // of pairs: until the release
	Gaps  []time.Duration // how long the name was free between two owners
	// CPU and Allocs are the client's, for each pair.
	CPU             time.Duration
	Allocs          float64
	Lost, Stuck     int // kept names; workers that did not end
	Failures        int64
	Failure         string  // the first
	PerSecond       float64 // pairs, or owner changes
	P50, P99        time.Duration
	Fairness        float64
	ByProcess       float64 // the fairness between processes
	Between         float64 // owner changes from a process to another, per second
	Starved         int
	Overlaps        int64
	Drain           time.Duration
	Commands, Calls float64 // the server's, and of them scripts; per second
	PerChange       float64 // the server's commands for each owner change
}

const (
	retryAfter  = 20 * time.Millisecond // before a worker whose call has failed asks again
	leaveWithin = 15 * time.Second      // a worker that has not ended then is stuck: it waits for a lock that nobody holds
)

// part is what a process of a measurement plays. Its argument is a task.
const part = "bench"

// child does the task of this process and ends the process, if it was started for a task. The program MUST call it
// first. It closes no client: that may wait for a worker that is stuck.
func child() {
	testserver.Play(map[string]func([]string) error{part: func(args []string) error {
		var t task
		if err := json.Unmarshal([]byte(args[0]), &t); err != nil {
			return err
		}
		// In a program contexts can end, and some client libraries have another path for contexts that cannot.
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		r, err := t.do(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", t.Peer, err)
		}
		return json.NewEncoder(os.Stdout).Encode(r)
	}})
}

// start starts this program as the process of a task. The process ends with the context.
func (t task) start(ctx context.Context, tb testing.TB) *testserver.Child {
	text, err := json.Marshal(t)
	testserver.Must(tb, err)
	process := testserver.StartChild(tb, part, string(text))
	context.AfterFunc(ctx, process.Kill)
	return process
}

func (t task) do(ctx context.Context) (result, error) {
	s := storeOf(t.Store)
	if t.TTL > 0 {
		return result{}, holdForEver(ctx, s, t)
	}
	a, err := openArena(t.Arena)
	if err != nil {
		return result{}, err
	}
	lockers := make([]locker, t.Clients)
	for i := range lockers {
		if lockers[i], err = s.open(ctx, t.Peer, t.Addr); err != nil {
			return result{}, err
		}
	}
	if t.Kind == keep {
		return t.keep(ctx, a, lockers)
	}
	return t.work(ctx, a, lockers), nil
}

// work runs the workers of one process until the measurement is over. A call that fails is counted,
// and the worker asks again, because what a crowd does to a store is what is measured.
func (t task) work(ctx context.Context, a *arena, lockers []locker) result {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	workers := make([]worker, t.Workers)
	ended := make(chan *worker, t.Workers)
	a.ready.Add(1)
	await(a, warming)
	for i := range workers {
		w := &workers[i]
		w.id, w.task, w.arena, w.lock = int32(t.Process<<16|i+1), t, a, lockers[i%len(lockers)]
		go func() { w.run(ctx); ended <- w }()
	}
	await(a, measured)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu := cpuOfSelf()
	await(a, over)
	cpu = cpuOfSelf() - cpu
	runtime.ReadMemStats(&after)
	cancel()
	r := result{Stuck: t.Workers}
	for late := time.After(leaveWithin); r.Stuck > 0; r.Stuck-- {
		select {
		case w := <-ended:
			r.Waits, r.Gaps = append(r.Waits, w.waits...), append(r.Gaps, w.gaps...)
			r.Failures += w.failures
			if r.Failure == "" && w.failure != nil {
				r.Failure = w.failure.Error()
			}
			continue
		case <-late:
		}
		break
	}
	var holds int64
	for i := range workers {
		r.Holds = append(r.Holds, workers[i].holds.Load())
		holds += workers[i].holds.Load()
	}
	if t.Kind == pairs && holds > 0 {
		r.CPU, r.Allocs = cpu/time.Duration(holds), float64(after.Mallocs-before.Mallocs)/float64(holds)
	}
	return r
}

// cpuOfSelf returns the processor time of this process.
func cpuOfSelf() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// await waits until the measurement has come to a stage. Hundreds of processes that look each millisecond keep the
// processors busy, so each looks less often the longer it has waited.
func await(a *arena, stage int32) {
	for begun := time.Now(); a.stage.Load() < stage; {
		time.Sleep(min(max(time.Since(begun)/64, time.Millisecond), 200*time.Millisecond))
	}
}

// worker takes and releases locks, and keeps what it has seen.
type worker struct {
	task
	id          int32
	arena       *arena
	lock        locker
	holds       atomic.Int64
	waits, gaps []time.Duration
	failures    int64
	failure     error
}

func (w *worker) run(ctx context.Context) {
	a, name := w.arena, w.Name
	if w.Kind == pairs {
		name = fmt.Sprintf("bench/%d", w.id)
	}
	a.asking.Add(1)
	for start := time.Now(); a.stage.Load() != over; {
		h, err := w.lock(ctx, name)
		took := time.Since(start)
		switch {
		case err != nil && ctx.Err() != nil:
			// A wait that the end of the measurement cuts short counts too: a worker that never
			// gets the lock has waited longest.
			w.waits = append(w.waits, took)
			return
		case err != nil:
			w.fail(ctx, err)
			continue
		}
		counts := a.stage.Load() == measured || w.Kind == wait
		if w.Kind != pairs {
			// A worker that takes the lock again at once has not waited for another.
			if gap := a.enter(w.id, w.Stay); counts && gap > 0 {
				w.waits, w.gaps = append(w.waits, took), append(w.gaps, gap)
			}
		}
		if err := h.release(); err != nil {
			w.fail(ctx, err)
		}
		a.holds.Add(1)
		if counts {
			w.holds.Add(1)
		}
		if counts && w.Kind == pairs {
			w.waits = append(w.waits, time.Since(start))
		}
		if w.Kind == wait {
			return
		}
		start = time.Now()
	}
}

// fail counts a call that has failed, and waits before the next one.
func (w *worker) fail(ctx context.Context, err error) {
	w.failures++
	if w.failure == nil {
		w.failure = err
	}
	select {
	case <-time.After(retryAfter):
	case <-ctx.Done():
	}
}

// keep takes a name for each worker, and lets Holdfast renew them until the measurement is over.
func (t task) keep(ctx context.Context, a *arena, lockers []locker) (r result, err error) {
	const takers = 8
	holds, errs := make([]hold, t.Workers), make([]error, takers)
	var all sync.WaitGroup
	for taker := range takers {
		all.Go(func() {
			for i := taker; i < t.Workers && errs[taker] == nil; i += takers {
				holds[i], errs[taker] = lockers[i%len(lockers)](ctx, fmt.Sprintf("bench/kept/%d/%d", t.Process, i))
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return r, err
	}
	a.ready.Add(1)
	await(a, over)
	for _, h := range holds {
		if h.lost() {
			r.Lost++
		}
	}
	return r, nil
}

// heap returns how much is used after a collection.
func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// joined puts the results of the processes of a measurement together.
func joined(parts []result) (r result) {
	ofProcesses := make([]int64, len(parts))
	for i, p := range parts {
		for _, n := range p.Holds {
			ofProcesses[i] += n
		}
		r.Holds, r.Waits, r.Gaps = append(r.Holds, p.Holds...), append(r.Waits, p.Waits...), append(r.Gaps, p.Gaps...)
		r.CPU, r.Allocs = max(r.CPU, p.CPU), max(r.Allocs, p.Allocs)
		r.Failures, r.Stuck = r.Failures+p.Failures, r.Stuck+p.Stuck
		if r.Failure == "" {
			r.Failure = p.Failure
		}
	}
	r.P50, r.P99 = quantile(r.Waits, 0.5), quantile(r.Waits, 0.99)
	r.Fairness, r.ByProcess = jain(r.Holds), jain(ofProcesses)
	for _, n := range r.Holds {
		if n == 0 {
			r.Starved++
		}
	}
	return r
}

// quantile returns the q quantile of the samples, and sorts them.
func quantile(samples []time.Duration, q float64) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	slices.Sort(samples)
	return samples[min(len(samples)-1, int(q*float64(len(samples))))]
}

// jain returns Jain's index of fairness: 1 if all have the same share, 1/n if one of n has all.
func jain(shares []int64) float64 {
	var sum, squares float64
	for _, s := range shares {
		sum += float64(s)
		squares += float64(s) * float64(s)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(shares)) * squares)
}
