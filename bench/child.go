package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// task is one measurement, the work of one process, or of one of several that
// work at the same time.
type task struct {
	Store, Peer, Addr string
	Workload          string
	Workers           int
	Window            time.Duration
	// Clients is how many clients the workers of a process have between them.
	Clients int
	Stay    time.Duration // how long each one keeps a hot name
	// Arena is the file of the memory that the processes of a hot name share,
	// Process the number of this one and Processes how many there are.
	Arena              string
	Process, Processes int
}

// result is what was measured. What does not belong to the workload is zero.
type result struct {
	PerSecond float64 // pairs, or owner changes
	P50, P99  time.Duration
	// CPU, Allocs and Bytes are the client's, for each pair, waiter or hold.
	CPU    time.Duration
	Allocs float64
	Bytes  float64
	// ServerBytes is how much the server's memory has grown for each waiter.
	ServerBytes float64
	// Turns are those of each goroutine; Overlaps the holds that were not alone.
	Turns    []int64
	Overlaps int64
	Fairness float64
	// Gaps are the times for which nobody had the name between two owners.
	Gaps []time.Duration
	// Commands and Scripts are the server's, per second.
	Commands, Scripts float64
	Connections       int // to the server, while all wait
	Drain             time.Duration
	Lost              int
	Stuck             int // workers who wait for a lock that nobody holds
	// Foreign is how much of the machine others used meanwhile: 0 to 1.
	Foreign float64
}

// taskVariable carries a task to the process that does it.
const taskVariable = "HOLDFAST_BENCH_TASK"

// tooLong is how much longer than its window a measurement may take.
const tooLong = 90 * time.Second

// exitHangs is the exit code of a process whose peer hangs.
const exitHangs = 3

// Child does the task of this process, if it was started for one, and ends it.
// The program's first step is to call it.
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
		time.AfterFunc(t.Window+tooLong, func() {
			fmt.Fprintf(os.Stderr, "%s, %s: hangs\n", t.Workload, t.Peer)
			os.Exit(exitHangs)
		})
		// The contexts of a program's work can end, and some clients take another
		// way for one that cannot.
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
	s := stores[t.Store]
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
	// The process ends next: a peer's Close, which may wait for what is stuck, is
	// not called.
	switch t.Workload {
	case "pair", "pair64":
		return pairs(ctx, l, t.Workers, t.Window)
	case "hot", "hot4", "handoff", "clients2", "clients16":
		return hot(ctx, clients, t)
	case "wait":
		return wait(ctx, l, t.Workers, t.Window, work)
	case "hold":
		return hold(ctx, l, t.Workers, t.Window, work)
	}
	return result{}, fmt.Errorf("no workload %q", t.Workload)
}
