package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// task is what one process measures, alone or together with other processes.
type task struct {
	Store, Peer, Addr string
	Workload          string
	Workers           int
	Window            time.Duration
	// Clients is how many clients the workers of a process have between them.
	Clients int
	Stay    time.Duration // how long each one keeps a hot name
	TTL     time.Duration // of a holder that is going to be killed
	// Patience is how long a worker of a crowd waits before it gives up and asks again. 0: as
	// long as it takes.
	Patience time.Duration
	// Arena is the file of the memory that the processes of a hot name share,
	// Process the number of this one and Processes how many there are.
	Arena              string
	Process, Processes int
}

// result is what was measured. Figures that the workload does not measure are zero.
type result struct {
	PerSecond float64 // pairs, or owner changes
	P50, P99  time.Duration
	// CPU, Allocs and Bytes are the client's, for each pair, waiter or hold.
	CPU    time.Duration
	Allocs float64
	Bytes  float64
	// ServerBytes is how much the server's memory has grown for each waiter.
	ServerBytes float64
	// Holds is how many holds each goroutine had; Overlaps how many holds were not alone.
	Holds    []int64
	Overlaps int64
	Fairness float64
	// Gaps are how long the name was free between two owners.
	Gaps []time.Duration
	// Commands and Scripts are the server's, per second.
	Commands, Scripts float64
	Connections       int // to the server, while all wait
	Drain             time.Duration
	Lost              int
	Stuck             int // workers that wait for a lock that nobody holds
	// Of a crowd: how long each wait took, workers that never had the lock, the owner changes'
	// commands each, the server's processor time as a share of one core, waits that were given up
	// in time, and calls that failed, with what the first of them said.
	Waits            []time.Duration
	Starved          int
	PerChange        float64
	ServerCPU        float64
	GaveUp, Failures int64
	Failure          string
	// Foreign is how much of the machine others used meanwhile: 0 to 1.
	Foreign float64
}

// taskVariable carries a task to the process that does it.
const taskVariable = "HOLDFAST_BENCH_TASK"

// tooLong is how much longer than its window a measurement may take.
const tooLong = 90 * time.Second

// exitHangs is the exit code of a process whose peer hangs.
const exitHangs = 3

// Child runs the task of this process and ends the process, if it was started for a task.
// The program MUST call it first.
func Child() {
	text := os.Getenv(taskVariable)
	if text == "" {
		return
	}
	var t task
	err := json.Unmarshal([]byte(text), &t)
	var r result
	if err == nil {
		// A peer that hangs must not hang the measurement.
		time.AfterFunc(t.Window+4*t.TTL+tooLong, func() {
			fmt.Fprintf(os.Stderr, "%s, %s: hangs\n", t.Workload, t.Peer)
			os.Exit(exitHangs)
		})
		// In a program contexts can end, and some client libraries have another path for
		// contexts that cannot.
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		r, err = t.do(ctx)
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(r)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s, %s: %v\n", t.Workload, t.Peer, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (t task) do(ctx context.Context) (result, error) {
	kinds := stores
	if t.ofCrowd() {
		kinds = crowdStores
	}
	s := kinds[t.Store]
	if s == nil {
		return result{}, fmt.Errorf("no store %q", t.Store)
	}
	p, err := s.peer(t.Peer)
	if err != nil {
		return result{}, err
	}
	clients := make([]Locker, max(1, t.Clients))
	for i := range clients {
		if clients[i], err = p.open(ctx, t.Addr); err != nil {
			return result{}, err
		}
	}
	l := clients[0]
	work := func() (served, error) { return s.work(ctx, t.Addr) }
	// The process ends next, without a call of the peer's Close, which may wait for a
	// worker that is stuck.
	switch t.Workload {
	case "pair", "pair64":
		return pairs(ctx, l, t.Workers, t.Window)
	case "hot", "hot4", "handoff", "clients2", "clients16":
		return hot(ctx, clients, t)
	case crowdLoop, crowdOnce:
		return crowd(ctx, clients, t)
	case crashHold:
		return holdForEver(ctx, l, t)
	case idleSessions:
		return keepSessions(ctx, clients, t)
	case "wait":
		return wait(ctx, l, t.Workers, t.Window, work)
	case "hold":
		return hold(ctx, l, t.Workers, t.Window, work)
	}
	return result{}, fmt.Errorf("no workload %q", t.Workload)
}
