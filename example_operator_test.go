package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/memlock"
)

// Inspect shows the holders of a name and its waiters.
func ExampleInfo() {
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

	info, err := locks.Inspect(ctx, "deploy")
	if err != nil {
		log.Fatal(err)
	}
	for _, h := range info.Holders {
		fmt.Printf("%s: %s, token %d, %q, ends within 30 s: %t\n", info.Name, h.Mode, h.Token,
			h.Note, h.Expires.Seconds() <= 30)
	}
	fmt.Println(len(info.Waiters), "waiting")
	// Output:
	// deploy: exclusive, token 1, "release 7, by Ada", ends within 30 s: true
	// 0 waiting
}

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

// A third party that has got a sequencer asks the store about it.
func ExampleClient_CheckSequencer() {
	ctx := context.Background()
	locks, err := holdfast.Open(ctx, "mem://shop")
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	lease, err := locks.Mutex("deploy", nil).Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	s := lease.Sequencer()
	fmt.Println(locks.CheckSequencer(ctx, s))
	if err := lease.Release(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(locks.CheckSequencer(ctx, s))
	// Output:
	// <nil>
	// holdfast: check sequencer "deploy": not held
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

// Caps says what a store can do, and what it guarantees when things go wrong.
func ExampleCaps() {
	locks, err := holdfast.Open(context.Background(), "mem://shop")
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	caps := locks.Caps()
	fmt.Println("fencing:", caps.Fencing, "fair:", caps.Fair)
	pause := caps.Guarantees.Faults[driver.ClientPause]
	fmt.Println("client pause: exclusion", pause.Exclusion, "- tokens", pause.Tokens)
	// Output:
	// fencing: true fair: true
	// client pause: exclusion can break - tokens kept
}

func ExampleMode() {
	ctx := context.Background()
	locks, err := holdfast.Open(ctx, "mem://shop")
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	for _, lock := range []*holdfast.Lock{
		locks.Mutex("a", nil), locks.RWMutex("b", nil).Read, locks.Semaphore("c", 3, nil),
	} {
		lease, err := lock.Acquire(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(lease.Name(), lease.Mode())
		if err := lease.Release(); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// a exclusive
	// b shared
	// c slot
}
