// Hello shows two workers that want one lock: the second one waits for the first. It needs no server. Type
//
//	go run ./hello
//
// in directory examples, also in two terminals at once: the locks are files, which all processes of the host share.
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
	"time"

	"github.com/holdfastlock/holdfast"
	_ "github.com/holdfastlock/holdfast/filelock"
	_ "github.com/holdfastlock/holdfast/redislock"
)

var work = flag.Duration("work", time.Second, "how long a worker holds the lock")

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt) // Ctrl-C releases the lock
	defer stop()
	results := make(chan error)
	for _, who := range []string{"Ada", "Grace"} {
		go func() { results <- hello(ctx, who) }()
	}
	if err := errors.Join(<-results, <-results); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

// hello does what a process of its own would do.
func hello(ctx context.Context, who string) error {
	store := cmp.Or(os.Getenv("HOLDFAST_STORE"), "file:///tmp/holdfast-examples")
	locks, err := holdfast.OpenWith(ctx, store, &holdfast.ClientOptions{Events: holdfast.Events{
		Waiting: func(e holdfast.Event) { fmt.Printf("%s waits: %v\n", who, e.Err) },
	}})
	if err != nil {
		return err
	}
	defer locks.Close()

	lock := locks.Mutex("examples/hello", &holdfast.Options{Note: who})
	return lock.Do(ctx, func(ctx context.Context, lease *holdfast.Lease) error {
		fmt.Printf("%s has the lock, with token %d\n", who, lease.Token())
		select {
		case <-time.After(*work):
		case <-ctx.Done(): // Ctrl-C, or the lock is no longer trusted
		}
		fmt.Println(who, "lets the lock go")
		return context.Cause(ctx)
	})
}
