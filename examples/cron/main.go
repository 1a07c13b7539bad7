// Cron runs a job once per tick, in one of the processes that run this program. It needs no server. Type
//
//	go run ./cron
//
// in two terminals.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/holdfastlock/holdfast"
	_ "github.com/holdfastlock/holdfast/filelock"
	_ "github.com/holdfastlock/holdfast/redislock"
)

var (
	every   = flag.Duration("every", 5*time.Second, "the time between two ticks")
	minHold = flag.Duration("min-hold", 2*time.Second, "more than the clocks of the hosts differ, less than the time between two ticks")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	locks, err := holdfast.Open(ctx, cmp.Or(os.Getenv("HOLDFAST_STORE"), "file:///tmp/holdfast-examples"))
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	// The job is short. Without MinHold a process whose clock is late would find the lock free, and run the job again.
	lock := locks.Mutex("examples/cron", &holdfast.Options{MinHold: *minHold})
	for {
		next := time.Now().Truncate(*every).Add(*every)
		select {
		case <-time.After(time.Until(next)):
		case <-ctx.Done():
			return
		}
		switch err := tick(ctx, lock); {
		case errors.Is(err, holdfast.ErrHeld):
			fmt.Println(next.Format(time.TimeOnly), "another process runs the job")
		case err != nil:
			log.Print(err) // the store does not answer, or the lock was lost: the next tick tries again
		default:
			fmt.Println(next.Format(time.TimeOnly), "the job ran here")
		}
	}
}

// tick runs the job, unless another process does.
func tick(ctx context.Context, lock *holdfast.Lock) error {
	lease, err := lock.TryAcquire(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := lease.WithContext(ctx) // ends with the lock
	defer cancel()
	return errors.Join(job(ctx), lease.Release())
}

// job is yours.
func job(ctx context.Context) error { return ctx.Err() }
