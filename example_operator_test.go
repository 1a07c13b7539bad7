package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/memlock"
)

func ExampleClient_List() {
	ctx := context.Background()
	locks, err := holdfast.New(memlock.NewStore(nil).Client(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	for _, name := range []string{"orders/42", "orders/43", "deploy"} {
		lease, err := locks.Mutex(name, nil).Acquire(ctx)
		if err != nil {
			log.Fatal(err)
		}
		defer lease.Release()
	}

	for info, err := range locks.List(ctx, "orders/") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(info.Name)
	}
	// Unordered output:
	// orders/42
	// orders/43
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
