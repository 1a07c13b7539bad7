// Package ticktest runs a scheduler in three processes whose clocks are 200 ms apart, and checks
// that each tick of each job runs exactly once.
//
// The kernel gives all processes of a host one clock, and a Go program reads it without the C
// library, so nothing can be preloaded. A process therefore adds its offset where the scheduler
// lets it: see the tests of each adapter.
package ticktest

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// Plan is what each process runs: Jobs jobs, numbered from 0, that tick every Every from Start on,
// Ticks times. Instants are by the process's own clock, which is Ahead of the host's.
type Plan struct {
	Store string // for the processes: a URL
	Jobs  int
	Ticks int
	Every time.Duration
	Start time.Time
	Ahead time.Duration
}

// part is what a process of Run plays.
const part = "ticktest"

// Main is for TestMain: in a process that Run has started it runs the scheduler and exits.
func Main(m *testing.M, scheduler func(Plan) error) {
	testserver.Play(map[string]func([]string) error{part: func(args []string) error {
		var p Plan
		if err := json.Unmarshal([]byte(args[0]), &p); err != nil {
			return err
		}
		return scheduler(p)
	}})
	os.Exit(m.Run())
}

// Now returns the time by the process's clock.
func (p Plan) Now() time.Time { return time.Now().Add(p.Ahead) }

// End returns the instant after the last tick at which a process stops.
func (p Plan) End() time.Time {
	return p.Start.Add(time.Duration(p.Ticks)*p.Every - p.Every/4)
}

// Wait blocks until End by the process's clock.
func (p Plan) Wait() { time.Sleep(p.End().Sub(p.Now())) }

// Ran tells the test that a job has run for the tick that is the latest by the process's clock.
func (p Plan) Ran(job int) { p.RanAt(job, p.Now()) }

// RanAt tells the test that a job has run for the latest tick at an instant.
func (p Plan) RanAt(job int, at time.Time) {
	tick := at.Sub(p.Start).Round(time.Microsecond) / p.Every // a timer may fire a few ns early
	writing.Lock()
	defer writing.Unlock()
	fmt.Printf("ran %d %d\n", job, tick)
}

var writing sync.Mutex

// Run runs the plan in three processes, whose clocks are 0, 200 and 400 ms ahead, and returns
// when all have ended. It fails the test if a process fails, or if a tick did not run exactly once.
func Run(t *testing.T, p Plan) {
	t.Helper()
	p.Start = time.Now().Add(3 * time.Second).Truncate(time.Second)
	var mu sync.Mutex
	runs := map[[2]int]int{}
	byProcess := make([]int, 3)
	var all sync.WaitGroup
	for i := range byProcess {
		p.Ahead = time.Duration(i) * 200 * time.Millisecond
		text, err := json.Marshal(p)
		testserver.Must(t, err)
		process := testserver.StartChild(t, part, string(text))
		all.Go(func() {
			for line, err := process.Line(); err == nil; line, err = process.Line() {
				var job, tick int
				if _, err := fmt.Sscanf(line, "ran %d %d", &job, &tick); err != nil {
					t.Errorf("process %d wrote %q", i, line)
					continue
				}
				mu.Lock()
				runs[[2]int{job, tick}]++
				byProcess[i]++
				mu.Unlock()
			}
			process.End()
		})
	}
	all.Wait()
	for job := range p.Jobs {
		for tick := range p.Ticks {
			if n := runs[[2]int{job, tick}]; n != 1 {
				t.Errorf("tick %d of job %d ran %d times, want once", tick, job, n)
			}
			delete(runs, [2]int{job, tick})
		}
	}
	for what, n := range runs {
		t.Errorf("tick %d of job %d, which is not in the plan, ran %d times", what[1], what[0], n)
	}
	t.Logf("%d ticks; run by each process: %v", p.Jobs*p.Ticks, byProcess)
}
