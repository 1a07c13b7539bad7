package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"
)

// crowdUsual are the settings of crowds that the environment need not set.
var crowdUsual = settings{reps: 3, window: time.Second, crowds: []int{4, 64}}

const (
	maxCrowd    = 1000
	ofProcess   = 50 // clients in one process at most
	poolCrowd   = 256
	turnsEach   = 10 // owner changes for each client that a measurement waits for, if it need not wait long
	longWindow  = 10 // how many times as long as its window it waits for them at most
	crowdSettle = 2 * time.Second
	openWithin  = 60 * time.Second
	drainWithin = 60 * time.Second
	askWithin   = 10 * time.Second
)

// gathering is one workload of many clients on one name. A client is a connection, or a small
// pool, of its own.
type gathering struct {
	workload
	once     bool          // each client locks the name once
	idle     bool          // and before that the name is held, while all wait
	patience time.Duration // after which a worker gives up and asks again; 0: as long as it takes
}

// gatherings are the workloads for crowds of these sizes. The greatest one waits and drains too.
// Workloads that are compared stand together, and are measured in turns.
func gatherings(sizes []int) [][]gathering {
	var all [][]gathering
	for _, n := range sizes {
		all = append(all, []gathering{gatheringOf(fmt.Sprintf("clients%d", n), "want one name", n, crowdColumns)})
	}
	idle := gatheringOf("idle", "wait for one name, then each gets it once", slices.Max(sizes), idleColumns)
	idle.once, idle.idle = true, true
	pool := gatheringOf("pool", "want one name once each; those of a process share 2 connections", poolCrowd, queueColumns)
	pool.once = true
	all = append(all, []gathering{idle}, []gathering{pool})
	for _, goroutines := range []int{0, 1000} {
		patient := gatheringOf("impatience", "want one name", 64, patienceColumns)
		if goroutines > 0 {
			patient.name, patient.workers, patient.clients, patient.processes = "impatience1000", goroutines, 1, 1
			patient.stay = 2 * time.Millisecond // so only few of them are served within their patience
			patient.about = "1,000 goroutines of one client want one name, each for 2 ms"
		}
		impatient := patient
		impatient.about += ", give up after 10 ms and ask again"
		impatient.patience = 10 * time.Millisecond
		all = append(all, []gathering{patient, impatient})
	}
	return all
}

// gatheringOf makes processes of equally many clients, with one worker each.
func gatheringOf(name, about string, clients int, columns []column) gathering {
	processes := (clients + ofProcess - 1) / ofProcess
	for clients%processes != 0 {
		processes++
	}
	each := clients / processes
	return gathering{workload: workload{name: name, about: fmt.Sprintf("%d clients, %d in a process, %s", clients, each, about),
		workers: each, clients: each, processes: processes, columns: columns}}
}

// total returns how many workers a peer has in all.
func (g gathering) total(p peer) int {
	if p.alone {
		return 1
	}
	return g.workers * g.processes
}

var (
	changes         = column{"owner changes/s", perSecond, whole}
	starved         = column{"starved", func(r result) float64 { return float64(r.Starved) }, whole}
	stuck           = column{"stuck", func(r result) float64 { return float64(r.Stuck) }, whole}
	failures        = column{"failures", func(r result) float64 { return float64(r.Failures) }, whole}
	serverCPU       = column{"server CPU", func(r result) float64 { return 100 * r.ServerCPU }, percent}
	perChange       = column{"commands each", func(r result) float64 { return r.PerChange }, whole}
	unfairness      = column{"p99 ÷ fair share", overFairShare, known}
	crowdColumns    = []column{changes, {"wait p99", p99.of, span}, unfairness, fairness, starved, perChange, serverCPU, failures, stuck, others}
	connected       = column{"connections", func(r result) float64 { return float64(r.Connections) }, whole}
	drained         = column{"drain", func(r result) float64 { return float64(r.Drain) }, span}
	idleColumns     = []column{drained, starved, serverCPU, {"commands/s, idle", func(r result) float64 { return r.Commands }, whole}, connected, failures, stuck, others}
	queueColumns    = []column{{"until all were served", drained.of, span}, starved, connected, failures, stuck, others}
	patienceColumns = []column{{"holds/s", perSecond, whole}, fairness, starved, {"gave up", func(r result) float64 { return float64(r.GaveUp) }, whole},
		perChange, serverCPU, failures, stuck, others}
)

// overFairShare returns how many times as long as in a perfect queue one in a hundred waits: there
// each wait takes as long as everybody's turns. It is not known, and 0, if one in a hundred never
// had the lock: the measurement's end cut those waits short.
func overFairShare(r result) float64 {
	if 100*r.Starved > len(r.Holds) {
		return 0
	}
	return r.P99.Seconds() * r.PerSecond / float64(max(1, len(r.Holds)))
}

// known writes a figure that is positive if it is known.
func known(f float64) string {
	if f == 0 {
		return "unknown"
	}
	return fmt.Sprintf("%.2f", f)
}

// measureCrowd measures all peers one by one, as often as there are repetitions, each on a server
// of its own. A peer that cannot be measured has a failure.
func measureCrowd(s *store, all []gathering, set settings, dir string, start func() (addr string, stop func())) []series {
	got := make([]series, len(all))
	for range set.reps {
		for _, p := range s.peers {
			if set.peers != nil && !slices.Contains(set.peers, p.name) {
				continue
			}
			for i, g := range all {
				if slices.Contains(p.skips, g.name) || p.only != "" && p.only != g.name {
					continue
				}
				others := children()
				addr, stop := start()
				server := slices.DeleteFunc(children(), func(pid int) bool { return slices.Contains(others, pid) })
				before := loadNow()
				r, err := crowdRun{s, p, g, addr, server, set.window}.measure(dir)
				r.Foreign = foreign(before, loadNow())
				stop()
				if err != nil { // what was measured until then counts
					r.Failures, r.Failure = r.Failures+1, err.Error()
				}
				if got[i] == nil {
					got[i] = series{}
				}
				got[i][p.name] = append(got[i][p.name], r)
			}
		}
	}
	return got
}

// crowdRun is one measurement.
type crowdRun struct {
	store  *store
	peer   peer
	crowd  gathering
	addr   string
	server []int // its processes
	window time.Duration
}

func (c crowdRun) measure(dir string) (result, error) {
	t := task{Store: c.store.name, Peer: c.peer.name, Addr: c.addr, Workload: crowdLoop, Workers: c.crowd.workers,
		Clients: c.crowd.clients, Processes: c.crowd.processes, Patience: c.crowd.patience, Stay: c.crowd.stay,
		Window: openWithin + drainWithin + longWindow*c.window, Arena: filepath.Join(dir, "arena")}
	if c.crowd.once {
		t.Workload = crowdOnce
	}
	if c.peer.alone {
		t.Workers, t.Clients, t.Processes = 1, 1, 1
	}
	c.read() // opens the connection that asks: a crowded server might not let it in
	if err := newArena(t.Arena); err != nil {
		return result{}, err
	}
	a, err := openArena(t.Arena)
	if err != nil {
		return result{}, err
	}
	release := func() error { return nil }
	if c.crowd.idle {
		holder, err := c.peer.open(context.Background(), c.addr)
		if err != nil {
			return result{}, err
		}
		defer holder.Close()
		if release, err = lockWithin(context.Background(), holder, 0); err != nil {
			return result{}, err
		}
	}
	answers := startProcesses(t)
	r, err := result{}, errors.New("the clients were not open in time")
	if within(openWithin, func() bool { return int(a.ready.Load()) == t.Processes || len(answers) > 0 }) {
		if c.crowd.once {
			r, err = c.drain(a, t, release)
		} else {
			r, err = c.loop(a, t)
		}
	}
	a.stage.Store(over)
	var parts []result
	for range t.Processes {
		got := <-answers
		if got.err != nil {
			err = got.err
		}
		parts = append(parts, got.result)
	}
	whole := joined(parts)
	if len(whole.Holds) == 0 {
		whole.Starved = c.crowd.total(c.peer)
	}
	whole.PerSecond, whole.PerChange, whole.ServerCPU = r.PerSecond, r.PerChange, r.ServerCPU
	whole.Commands, whole.Connections, whole.Drain = r.Commands, r.Connections, r.Drain
	whole.Overlaps = a.overlaps.Load()
	return whole, err
}

// loop measures while the workers lock the name again and again: for the window, and then until
// each could have had it some times, because what few turns say about shares is rough.
func (c crowdRun) loop(a *arena, t task) (result, error) {
	everybody := int64(t.Workers * t.Processes)
	counted := &a.changes
	if c.peer.alone || t.Patience > 0 || t.Clients < t.Workers {
		counted = &a.holds // one worker changes nothing; of the impatient the holds are what counts
	}
	a.stage.Store(warming)
	time.Sleep(warmup)
	within(longWindow/2*c.window, func() bool { return a.holds.Load() >= everybody })
	before, unasked := c.read()
	first := counted.Load()
	a.stage.Store(measured)
	time.Sleep(c.window)
	within((longWindow-1)*c.window, func() bool { return counted.Load()-first >= turnsEach*everybody })
	a.stage.Store(over)
	n := float64(counted.Load() - first)
	elapsed := time.Since(before.at)
	after, err := c.read()
	r := result{PerSecond: n / elapsed.Seconds(), ServerCPU: after.cpuSince(before)}
	if err = errors.Join(unasked, err); n > 0 && err == nil {
		r.PerChange = float64(after.commands-before.commands) / n
	}
	return r, err
}

// drain lets all workers ask at once, and measures until each has had the name. If the name is
// held first, it measures what the server does while they only wait.
func (c crowdRun) drain(a *arena, t task, release func() error) (result, error) {
	var r result
	var failed error
	everybody := int64(t.Workers * t.Processes)
	a.stage.Store(warming)
	if c.crowd.idle {
		within(openWithin, func() bool { return int64(a.asking.Load()) == everybody })
		time.Sleep(crowdSettle)
		before, unasked := c.read()
		time.Sleep(longWindow / 2 * c.window)
		after, err := c.read()
		failed = errors.Join(unasked, err)
		r.ServerCPU, r.Connections = after.cpuSince(before), int(after.connections)
		r.Commands = float64(after.commands-before.commands) / after.at.Sub(before.at).Seconds()
	}
	start := time.Now()
	if err := release(); err != nil {
		return r, err
	}
	within(drainWithin, func() bool { return a.holds.Load() >= everybody })
	r.Drain = time.Since(start)
	if !c.crowd.idle {
		var now reading
		now, failed = c.read()
		r.Connections = int(now.connections)
	}
	return r, failed
}

// reading is what the server has done at an instant.
type reading struct {
	served
	at    time.Time
	ticks int64
}

func (c crowdRun) read() (reading, error) {
	ctx, cancel := context.WithTimeout(context.Background(), askWithin)
	defer cancel()
	did, err := c.store.work(ctx, c.addr)
	if err != nil {
		err = fmt.Errorf("the server does not say what it has done: %w", err)
	}
	return reading{did, time.Now(), ticksOf(c.server)}, err
}

// cpuSince returns the share of one core that the server has used since an earlier reading.
func (r reading) cpuSince(before reading) float64 {
	return float64(r.ticks-before.ticks) / ticksPerSecond / r.at.Sub(before.at).Seconds()
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

// printPatience writes how many of the patient crowd's holds the impatient one has.
func printPatience(w io.Writer, of string, patient, impatient []result) {
	low, mid, high := spread(ratios(impatient, patient, perSecond))
	fmt.Fprintf(w, "\n%s: the impatient have %.2f (%.2f–%.2f) × the patient ones' holds/s\n", of, mid, low, high)
}
