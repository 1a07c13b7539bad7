package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/memlock"
)

// The cron of every host starts a job at about the same time, and the job must run once. Its name stays
// closed for a while although the job is done at once.
func ExampleOptions() {
	ctx := context.Background()
	locks, err := holdfast.New(memlock.NewStore(nil).Client(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	once := &holdfast.Options{
		TTL:     10 * time.Second,
		MinHold: 30 * time.Second, // more than the hosts' clocks differ
		Note:    "cleanup by cron",
	}
	for _, host := range []string{"a", "b"} {
		lease, err := locks.Mutex("cron/cleanup", once).TryAcquire(ctx)
		if errors.Is(err, holdfast.ErrHeld) {
			fmt.Println("host", host, "is too late")
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("host", host, "cleans up")
		if err := lease.Release(); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// host a cleans up
	// host b is too late
}

// A function that holds a lock calls another that acquires the same name. The context carries the
// hold: by default the inner acquire returns ErrDeadlock, and does not hang.
func ExampleOptions_reentrant() {
	ctx := context.Background()
	locks, err := holdfast.Open(ctx, "mem://shop")
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	nothing := func(context.Context, *holdfast.Lease) error { return nil }

	err = locks.Mutex("orders/42", nil).Do(ctx, func(ctx context.Context, _ *holdfast.Lease) error {
		err := locks.Mutex("orders/42", nil).Do(ctx, nothing)
		fmt.Println(err)

		err = locks.Mutex("orders/42", &holdfast.Options{Reentrant: true}).Do(ctx, nothing)
		fmt.Println("reentrant:", err)
		return err
	})
	fmt.Println("outer:", err)
	// Output:
	// holdfast: acquire "orders/42": already held by this context
	// reentrant: <nil>
	// outer: <nil>
}

// Events are for counters and alarms.
func ExampleEvents() {
	ctx := context.Background()
	locks, err := holdfast.New(memlock.NewStore(nil).Client(), &holdfast.ClientOptions{
		Events: holdfast.Events{
			Acquired: func(e holdfast.Event) { fmt.Println("acquired", e.Name, "token", e.Token) },
			Lost:     func(e holdfast.Event) { fmt.Println("LOST", e.Err) },
			Released: func(e holdfast.Event) { fmt.Println("released", e.Name) },
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	lease, err := locks.Mutex("orders/42", nil).Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := lease.Release(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// acquired orders/42 token 1
	// released orders/42
}

// To wait for a lock beside other things, acquire it in a goroutine, and select what comes first.
// If that is something else, end the wait, and release the lease that may have come meanwhile.
func ExampleLock_Acquire_select() {
	ctx := context.Background()
	locks, err := holdfast.Open(ctx, "mem://select")
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	other, err := locks.Mutex("orders/42", nil).Acquire(ctx) // somebody else has it
	if err != nil {
		log.Fatal(err)
	}
	defer other.Release()
	news := make(chan string, 1)
	news <- "order 42 is cancelled"

	type result struct {
		lease *holdfast.Lease
		err   error
	}
	acquired := make(chan result, 1)
	wait, giveUp := context.WithCancel(ctx)
	defer giveUp()
	go func() {
		lease, err := locks.Mutex("orders/42", nil).Acquire(wait)
		acquired <- result{lease, err}
	}()

	select {
	case r := <-acquired:
		if r.err != nil {
			log.Fatal(r.err)
		}
		fmt.Println("charging order 42")
		if err := r.lease.Release(); err != nil {
			log.Fatal(err)
		}
	case text := <-news:
		giveUp()
		if r := <-acquired; r.err == nil { // both came at once
			r.lease.Release()
		} else {
			fmt.Println("no longer waiting:", errors.Is(r.err, context.Canceled))
		}
		fmt.Println(text)
	}
	// Output:
	// no longer waiting: true
	// order 42 is cancelled
}
