package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// workload says what workers do with a lock.
type workload struct {
	name      string
	about     string
	workers   int // of each process
	clients   int // of each process, which its workers share; 0: one
	processes int
	stay      time.Duration // how long each one keeps a hot name
	window    time.Duration // 0: HOLDFAST_BENCH_WINDOW
	reps      int           // 0: HOLDFAST_BENCH_REPS
	columns   []column
}

// workloads are all workloads, in the order of the documentation.
var workloads = []workload{
	{name: "pair", about: "one goroutine takes and releases a name of its own", workers: 1,
		processes: 1, columns: pairColumns},
	{name: "pair64", about: "64 goroutines take and release, a name each", workers: 64,
		processes: 1, columns: pairColumns},
	{name: "hot", about: "64 goroutines want one name", workers: 64, processes: 1, columns: hotColumns},
	{name: "hot4", about: "4 processes of 16 goroutines want one name", workers: 16, processes: 4,
		columns: hotColumns},
	{name: "clients2", about: "2 goroutines, a client each, want one name", workers: 2, clients: 2,
		processes: 1, columns: hotColumns},
	{name: "clients16", about: "16 goroutines, a client each, want one name", workers: 16,
		clients: 16, processes: 1, columns: hotColumns},
	{name: "handoff", about: "8 processes want one name, each for 10 ms at a time", workers: 1,
		processes: 8, stay: 10 * time.Millisecond, window: 6 * time.Second,
		columns: handoffColumns},
	{name: "wait", about: "1,000 goroutines wait for one name", workers: 1000, processes: 1,
		window: 4 * time.Second, reps: 1, columns: waitColumns},
	{name: "hold", about: "10,000 names are held and renewed", workers: 10000, processes: 1,
		window: 31 * time.Second, reps: 1, columns: holdColumns},
}

// settings of a run, from the environment.
type settings struct {
	reps   int
	window time.Duration
	peers  []string // nil: all
	crowds []int    // how many clients a crowd has
}

// usual are the settings that the environment need not set.
var usual = settings{reps: 5, window: 2 * time.Second}

// settingsOf reads the settings; what the environment does not set is as in s.
func settingsOf(getenv func(string) string, s settings) (settings, error) {
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
	if v := getenv("HOLDFAST_BENCH_CROWDS"); v != "" {
		s.crowds = nil
		for text := range strings.SplitSeq(v, ",") {
			n, err := strconv.Atoi(text)
			if err != nil || n < 2 || n > maxCrowd {
				return s, fmt.Errorf("HOLDFAST_BENCH_CROWDS=%s: numbers from 2 to %d are needed, such as 4,64,1000", v, maxCrowd)
			}
			s.crowds = append(s.crowds, n)
		}
	}
	return s, nil
}

// series are the results of each peer, one for each repetition.
type series map[string][]result

// measure measures all peers one by one, as often as there are repetitions. Start starts a
// server for one measurement, and returns its address and the function that ends it.
func measure(s *store, w workload, set settings, dir string, start func() (addr string, stop func())) (series, error) {
	reps, window := set.reps, set.window
	if w.reps != 0 {
		reps = min(reps, w.reps)
	}
	if w.window != 0 {
		window = w.window
	}
	got := series{}
	for range reps {
		for _, p := range s.peers {
			if slices.Contains(p.skips, w.name) || set.peers != nil && !slices.Contains(set.peers, p.name) {
				continue
			}
			addr, stop := start()
			t := task{Store: s.name, Peer: p.name, Addr: addr, Workload: w.name, Workers: w.workers,
				Window: window, Clients: w.clients, Stay: w.stay, Processes: w.processes}
			before := loadNow()
			r, err := runProcesses(t, dir)
			r.Foreign = foreign(before, loadNow())
			stop()
			if err != nil && p.name != s.ours && hangs(err) {
				r, err = result{Stuck: w.workers * w.processes}, nil
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p.name, err)
			}
			got[p.name] = append(got[p.name], r)
		}
	}
	return got, nil
}

func hangs(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.ExitCode() == exitHangs
}

// runProcesses runs a task in as many processes as it says, and joins their results.
func runProcesses(t task, dir string) (result, error) {
	t.Arena = filepath.Join(dir, "arena")
	if err := newArena(t.Arena); err != nil {
		return result{}, err
	}
	a, err := openArena(t.Arena)
	if err != nil {
		return result{}, err
	}
	answers := startProcesses(t)
	var elapsed time.Duration
	if t.Workload != "wait" && t.Workload != "hold" && !strings.HasPrefix(t.Workload, "pair") {
		for int(a.ready.Load()) < t.Processes && len(answers) == 0 {
			time.Sleep(time.Millisecond)
		}
		a.stage.Store(warming)
		time.Sleep(warmup)
		start := time.Now()
		a.stage.Store(measured)
		time.Sleep(t.Window)
		a.stage.Store(over)
		elapsed = time.Since(start)
	}
	var r result
	for range t.Processes {
		got := <-answers
		if got.err != nil {
			a.stage.Store(over)
			err = got.err
		}
		holds, gaps := append(r.Holds, got.Holds...), append(r.Gaps, got.Gaps...)
		p50, p99 := max(r.P50, got.P50), max(r.P99, got.P99) // of the worst process
		r = got.result
		r.Holds, r.Gaps, r.P50, r.P99 = holds, gaps, p50, p99
	}
	if elapsed > 0 {
		r.PerSecond = float64(a.changes.Load()) / elapsed.Seconds()
		r.Overlaps, r.Fairness = a.overlaps.Load(), jain(r.Holds)
	}
	return r, err
}

// answer is what one process has measured.
type answer struct {
	result
	err error
}

// startProcesses starts the processes of a task. Each answers once.
func startProcesses(t task) <-chan answer {
	answers := make(chan answer, t.Processes)
	for i := range t.Processes {
		t.Process = i
		go func(t task) {
			r, err := runProcess(t)
			answers <- answer{r, err}
		}(t)
	}
	return answers
}

func runProcess(t task) (result, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return result{}, err
	}
	program, err := os.Executable()
	if err != nil {
		return result{}, err
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), taskVariable+"="+string(text))
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return result{}, fmt.Errorf("%w: %s", err, complaints.Bytes())
	}
	var r result
	return r, json.Unmarshal(out, &r)
}
