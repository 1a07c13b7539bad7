//go:build soak

package etcdlock

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
)

// TestMain also is a process of a crowd.
func TestMain(m *testing.M) {
	if job := os.Getenv(crowdEnv); job != "" {
		if err := joinCrowd(job); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// joinCrowd opens the clients, says "ready", begins at the first line of its input, ends at
// the second or at its end, and prints its result.
func joinCrowd(text string) error {
	var job crowdJob
	if err := json.Unmarshal([]byte(text), &job); err != nil {
		return err
	}
	result := crowdResult{Counts: make([]int, job.Clients)}
	takes := make([]crowdLock, job.Clients)
	for i := range takes {
		var err error
		if takes[i], err = job.open(); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	in := bufio.NewScanner(os.Stdin)
	in.Scan()
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		in.Scan()
		stop()
	}()
	var all sync.WaitGroup
	var mu sync.Mutex
	for i, take := range takes {
		all.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				release, err := take(ctx)
				hold := crowdHold{time.Now().UnixMilli(), time.Since(began).Seconds()}
				if err == nil {
					err = release()
				}
				mu.Lock()
				if err == nil {
					result.Counts[i]++
					result.Holds = append(result.Holds, hold)
				} else if ctx.Err() == nil {
					result.Errors = append(result.Errors, err.Error())
				}
				mu.Unlock()
				if job.Once && err == nil {
					return
				}
			}
		})
	}
	all.Wait()
	return json.NewEncoder(os.Stdout).Encode(result)
}
