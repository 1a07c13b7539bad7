package bench

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// mostProcesses is how many programs want one name at once, at most.
const mostProcesses = 200

// patienceOfPrograms is how long each of these programs waits for the name.
const patienceOfPrograms = "60s"

// ended is how many programs ended with each exit code, and how long all of them took together.
type ended struct {
	codes map[int]int
	took  time.Duration
	said  string // by the first that did not succeed
}

// together starts n programs at once and waits until all have ended.
func together(ctx context.Context, n int, env []string, argv ...string) ended {
	e := ended{codes: map[int]int{}}
	var mu sync.Mutex
	var wg sync.WaitGroup
	start := time.Now()
	for range n {
		wg.Go(func() {
			cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
			cmd.Env = append(os.Environ(), env...)
			said, err := cmd.CombinedOutput()
			mu.Lock()
			defer mu.Unlock()
			e.codes[cmd.ProcessState.ExitCode()]++ // -1: it did not start, or was killed
			if err != nil && e.said == "" {
				e.said = cmp.Or(strings.TrimSpace(string(said)), err.Error())
			}
		})
	}
	wg.Wait()
	e.took = time.Since(start)
	return e
}

// String says how many have run and what became of the others.
func (e ended) String() string {
	text := fmt.Sprintf("%d have run", e.codes[0])
	for _, code := range slices.Sorted(maps.Keys(e.codes)) {
		if code != 0 {
			text += fmt.Sprintf(", exit %d: %d", code, e.codes[code])
		}
	}
	return fmt.Sprintf("%s, in %v", text, e.took.Round(10*time.Millisecond))
}
