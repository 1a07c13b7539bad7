package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// workload says what workers do with a lock.
type workload struct {
	name, about string
	kind        kind
	workers     int // of each process
	clients     int // of each process; 0: one
	processes   int
	stay        time.Duration // how long each one keeps the shared name
	window      time.Duration // 0: HOLDFAST_BENCH_WINDOW
	reps        int           // at most; 0: HOLDFAST_BENCH_REPS
	columns     []column
}

// workloads are the workloads of all stores, in the order of the documentation.
var workloads = []workload{
	{name: "pair", about: "one goroutine takes and releases a name of its own", kind: pairs, workers: 1, processes: 1, columns: pairColumns},
	{name: "pair64", about: "64 goroutines take and release, a name each", kind: pairs, workers: 64, processes: 1, columns: pairColumns},
	{name: "hot", about: "64 goroutines want one name", kind: hot, workers: 64, processes: 1, columns: hotColumns},
	{name: "hot4", about: "4 processes of 16 goroutines want one name", kind: hot, workers: 16, processes: 4, columns: hot4Columns},
	crowdOf(16),
	{name: "handoff", about: "8 processes want one name, each for 10 ms at a time", kind: hot, workers: 1, processes: 8,
		stay: 10 * time.Millisecond, window: 6 * time.Second, columns: handoffColumns},
	{name: "wait", about: "1,000 goroutines wait for one name, then each gets it once", kind: wait, workers: 1000, processes: 1,
		window: 4 * time.Second, reps: 1, columns: waitColumns},
}

// crowdOf makes processes of equally many clients, with one worker each.
func crowdOf(clients int) workload {
	processes := (clients + ofProcess - 1) / ofProcess
	for clients%processes != 0 {
		processes++
	}
	each := clients / processes
	return workload{name: fmt.Sprintf("clients%d", clients), about: fmt.Sprintf("%d clients, %d in a process, want one name", clients, each),
		kind: crowd, workers: each, clients: each, processes: processes, columns: crowdColumns}
}

const (
	ofProcess   = 50 // clients in one process at most
	turnsEach   = 10 // owner changes for each client of a crowd that a measurement waits for, if it need not wait long
	longWindow  = 10 // how many times as long as its window it waits for them at most
	warmup      = 300 * time.Millisecond
	settle      = 2 * time.Second
	openWithin  = 150 * time.Second
	drainWithin = 60 * time.Second
)

// settings of a run, from the environment.
type settings struct {
	reps   int
	window time.Duration
	peers  []string // nil: all
}

// settingsOf reads the settings; reps and window are those that the environment need not set.
func settingsOf(getenv func(string) string, reps int, window time.Duration) (settings, error) {
	s := settings{reps: reps, window: window}
	var err error
	if v := getenv("HOLDFAST_BENCH_REPS"); v != "" {
		if s.reps, err = strconv.Atoi(v); err != nil || s.reps < 1 {
			return s, fmt.Errorf("HOLDFAST_BENCH_REPS=%s: a number from 1 on is needed", v)
		}
	}
	if v := getenv("HOLDFAST_BENCH_WINDOW"); v != "" {
		if s.window, err = time.ParseDuration(v); err != nil || s.window <= 0 {
			return s, fmt.Errorf("HOLDFAST_BENCH_WINDOW=%s: a duration such as 2s is needed", v)
		}
	}
	if v := getenv("HOLDFAST_BENCH_PEERS"); v != "" {
		s.peers = strings.Split(v, ";")
	}
	return s, nil
}

// series are the results of each peer, one for each repetition.
type series map[string][]result

// measure measures all peers one by one, as often as there are repetitions. Start starts a
// server for one measurement, and returns its address and the function that ends it.
func measure(tb testing.TB, s *store, w workload, set settings, start func() (addr string, stop func())) series {
	if w.reps != 0 {
		set.reps = min(set.reps, w.reps)
	}
	if w.window == 0 {
		w.window = set.window
	}
	got := series{}
	for range set.reps {
		for _, p := range s.all() {
			if p.can&w.kind == 0 || p.most > 0 && w.clients*w.processes > p.most || set.peers != nil && !slices.Contains(set.peers, p.name) {
				continue
			}
			addr, stop := start()
			r, err := (&measurement{workload: w, store: s, peer: p, addr: addr}).run(tb)
			stop()
			if err != nil { // what was measured until then counts
				r.Failures, r.Failure = r.Failures+1, err.Error()
			}
			got[p.name] = append(got[p.name], r)
		}
	}
	return got
}

// measurement is one measurement of one peer, on a server of its own.
type measurement struct {
	workload
	store *store
	peer  peer
	addr  string
}

// run starts the processes, moves the arena's stage on, and joins the results.
func (m *measurement) run(tb testing.TB) (result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), openWithin+drainWithin+longWindow*m.window+2*leaveWithin)
	defer cancel()
	file := filepath.Join(tb.TempDir(), "arena")
	a, err := openArena(file)
	if err != nil {
		return result{}, err
	}
	name := "bench/shared/" + m.name // what the last workload has left in its queue does not delay this one
	m.read()                         // opens the connection that asks: a crowded server might not let it in
	release := func() error { return nil }
	if m.kind == wait {
		holder, err := m.peer.open(ctx, m.addr)
		if err != nil {
			return result{}, err
		}
		h, err := holder(ctx, name)
		if err != nil {
			return result{}, err
		}
		release = h.release
	}
	answers := startProcesses(ctx, tb, task{Store: m.store.name, Peer: m.peer.name, Addr: m.addr, Kind: m.kind, Name: name, Workers: m.workers,
		Clients: max(1, m.clients), Stay: m.stay, Arena: file}, m.processes)
	r, err := result{}, errors.New("the clients were not open in time")
	if within(openWithin, func() bool { return int(a.ready.Load()) == m.processes || len(answers) > 0 }) && len(answers) == 0 {
		a.stage.Store(warming)
		if m.kind == wait {
			r, err = m.drain(a, release)
		} else {
			r, err = m.loop(a)
		}
	}
	a.stage.Store(over)
	var parts []result
	for range m.processes {
		got := <-answers
		if got.err != nil {
			err = got.err
		}
		parts = append(parts, got.result)
	}
	whole := joined(parts)
	if len(whole.Holds) == 0 {
		whole.Starved = m.workers * m.processes
	}
	whole.PerSecond, whole.PerChange, whole.Between = r.PerSecond, r.PerChange, r.Between
	whole.Commands, whole.Calls, whole.Drain = r.Commands, r.Calls, r.Drain
	whole.Overlaps = a.overlaps.Load()
	return whole, err
}

// loop measures while the workers lock again and again, in a crowd until each client could have had
// the name some times, because what few turns say about shares is rough.
func (m *measurement) loop(a *arena) (result, error) {
	everybody := int64(m.workers * m.processes)
	counted := &a.changes
	if m.kind == pairs {
		counted = &a.holds
	}
	time.Sleep(warmup)
	if m.kind == crowd {
		within(longWindow/2*m.window, func() bool { return a.holds.Load() >= everybody })
	}
	before, unasked := m.read()
	first, between := counted.Load(), a.between.Load()
	a.stage.Store(measured)
	time.Sleep(m.window)
	if m.kind == crowd {
		within((longWindow-1)*m.window, func() bool { return counted.Load()-first >= turnsEach*everybody })
	}
	a.stage.Store(over)
	n, elapsed := float64(counted.Load()-first), time.Since(before.at)
	after, err := m.read()
	r := since(before, after)
	r.PerSecond, r.Between = n/elapsed.Seconds(), float64(a.between.Load()-between)/elapsed.Seconds()
	if n > 0 {
		r.PerChange = r.Commands / r.PerSecond
	}
	return r, errors.Join(unasked, err)
}

// drain measures what the server does while all wait, lets the name go, and measures until each has
// had it.
func (m *measurement) drain(a *arena, release func() error) (result, error) {
	everybody := int64(m.workers * m.processes)
	within(openWithin, func() bool { return int64(a.asking.Load()) == everybody })
	time.Sleep(settle)
	r, failed := m.rate()
	start := time.Now()
	if err := release(); err != nil {
		return r, err
	}
	within(drainWithin, func() bool { return a.holds.Load() >= everybody })
	r.Drain = time.Since(start)
	return r, failed
}

// rate measures what the server does in a window, without the commands of the question.
func (m *measurement) rate() (result, error) {
	first, _ := m.read()
	before, unasked := m.read()
	time.Sleep(m.window)
	after, err := m.read()
	after.commands -= before.commands - first.commands
	return since(before, after), errors.Join(unasked, err)
}

// reading is what the server has done at an instant.
type reading struct {
	served
	at time.Time
}

func (m *measurement) read() (reading, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r := reading{at: time.Now()}
	if m.store.work == nil {
		return r, nil
	}
	var err error
	if r.served, err = m.store.work(ctx, m.addr); err != nil {
		err = fmt.Errorf("the server does not say what it has done: %w", err)
	}
	return r, err
}

// since returns what the server has done from one reading to the next.
func since(before, after reading) result {
	seconds := after.at.Sub(before.at).Seconds()
	return result{Commands: float64(after.commands-before.commands) / seconds, Calls: float64(after.scripts-before.scripts) / seconds}
}

// answer is what one process has measured.
type answer struct {
	result
	err error
}

// startProcesses starts n processes of a task, which end with the context. Each answers once.
func startProcesses(ctx context.Context, tb testing.TB, t task, n int) <-chan answer {
	answers := make(chan answer, n)
	for t.Process = range n {
		process := t.start(ctx, tb)
		go func() {
			var got answer
			line, err := process.Line()
			if err := errors.Join(err, json.Unmarshal([]byte(line), &got.result)); err != nil {
				got.err = fmt.Errorf("a process said %.300q: %w", line, err)
			}
			process.Kill()
			answers <- got
		}()
	}
	return answers
}

// within waits until something is so, and reports whether it was in time.
func within(limit time.Duration, so func() bool) bool {
	for deadline := time.Now().Add(limit); !so(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// report prints a table, and returns what must not have happened: a lock that did not exclude, or
// a failure of ours.
func (got series) report(s *store, w workload) (faults []string) {
	beside := got.best(s, w.columns[0].of)
	if got[s.floor] != nil {
		beside = s.floor
	}
	if w.kind == wait {
		beside = ""
	}
	got.print(os.Stdout, s, w, beside)
	for _, p := range s.all() {
		for _, r := range got[p.name] {
			if r.Overlaps > 0 {
				faults = append(faults, fmt.Sprintf("%s: %d holds were not alone", p.name, r.Overlaps))
			}
			if r.Failure != "" {
				fmt.Printf("%s: %d failures, the first: %s\n", p.name, r.Failures, r.Failure)
			}
			if p.name == oursName && w.kind != crowd && (r.Failures > 0 || r.Stuck > 0) { // a store may collapse under a crowd
				faults = append(faults, fmt.Sprintf("%s: %d failures (%s), %d workers stuck", p.name, r.Failures, r.Failure, r.Stuck))
			}
		}
	}
	return faults
}
