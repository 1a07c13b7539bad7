// Worker is a program of which Kubernetes runs several replicas, and of which one works at a time. When Kubernetes
// ends a pod it sends SIGTERM. The worker then stops and releases its lock, and another replica goes on at once. If
// SIGTERM just ended the process, the lock would stay until its TTL is over. It needs no server. Type
//
//	go run ./worker
//
// in two terminals, and end the first one by Ctrl-C.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/holdfastlock/holdfast"
	_ "github.com/holdfastlock/holdfast/redislock"
	_ "github.com/holdfastlock/holdfast/sqllock/sqliteconn" // a TTL as on a server; with files a killed process frees its locks
)

var ttl = flag.Duration("ttl", 30*time.Second, "how long the lock stays if the process is killed")

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	store := cmp.Or(os.Getenv("HOLDFAST_STORE"), "sqlite:///tmp/holdfast-examples.db")
	locks, err := holdfast.OpenWith(ctx, store, &holdfast.ClientOptions{Events: holdfast.Events{
		Waiting: func(e holdfast.Event) { fmt.Println("waits:", e.Err) },
	}})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	lock := locks.Mutex("examples/worker", &holdfast.Options{TTL: *ttl})
	for pause := time.Second; ctx.Err() == nil; pause = min(2*pause, time.Minute) {
		err := lock.Do(ctx, work)
		if err == nil || ctx.Err() != nil {
			break
		}
		log.Printf("tries again in %v: %v", pause, err) // the store does not answer, or the lock was lost
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	fmt.Println("ends, and holds nothing")
}

// work goes on in short steps, each of which must be over within the pod's terminationGracePeriodSeconds. Its context
// ends at SIGTERM, and when the lock can no longer be trusted.
func work(ctx context.Context, lease *holdfast.Lease) error {
	fmt.Println("has the lock, with token", lease.Token())
	for step := 1; ; step++ {
		select {
		case <-time.After(2 * time.Second):
			fmt.Println("has done step", step)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
