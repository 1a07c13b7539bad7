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

// Break ends the hold that Inspect showed, by its token, and never a later one.
func ExampleClient_Break() {
	ctx := context.Background()
	locks, err := holdfast.Open(ctx, "mem://shop")
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	stuck, err := locks.Mutex("deploy", nil).Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}

	info, err := locks.Inspect(ctx, "deploy")
	if err != nil {
		log.Fatal(err)
	}
	seen := info.Holders[0].Token
	fmt.Println("break:", locks.Break(ctx, "deploy", seen))
	<-stuck.Done()
	fmt.Println("the holder is told:", errors.Is(stuck.Err(), holdfast.ErrBroken))

	next, err := locks.Mutex("deploy", nil).TryAcquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer next.Release()
	fmt.Println("again:", errors.Is(locks.Break(ctx, "deploy", seen), holdfast.ErrNotHeld))
	fmt.Println("the next holder:", next.Err())
	// Output:
	// break: <nil>
	// the holder is told: true
	// again: true
	// the next holder: <nil>
}

// A HeldError says who holds the lock.
func ExampleHeldError() {
	ctx := context.Background()
	locks, err := holdfast.New(memlock.NewStore(nil).Client(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	lease, err := locks.Mutex("deploy", &holdfast.Options{Note: "release 7, by Ada"}).Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release()

	_, err = locks.Mutex("deploy", nil).TryAcquire(ctx)
	fmt.Println(err)
	if held, ok := errors.AsType[*holdfast.HeldError](err); ok {
		fmt.Println(held.Name, held.Token, held.Note)
	}
	// Output:
	// holdfast: try "deploy": held by another ("release 7, by Ada", token 1)
	// deploy 1 release 7, by Ada
}
