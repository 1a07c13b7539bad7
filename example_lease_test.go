package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/fence"
)

// The context ends when the lock is lost, here because an operator broke it.
func ExampleLease_WithContext() {
	ctx := context.Background()
	locks, err := holdfast.Open(ctx, "mem://shop")
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	lease, err := locks.Mutex("orders/42", nil).Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release()

	work, cancel := lease.WithContext(ctx)
	defer cancel()
	if err := locks.Break(ctx, "orders/42", lease.Token()); err != nil {
		log.Fatal(err)
	}
	<-work.Done()
	cause := context.Cause(work)
	fmt.Println(errors.Is(cause, holdfast.ErrLost), errors.Is(cause, holdfast.ErrBroken))
	// Output: true true
}

// A lease without renewal is for work of a known length. Renew extends it on demand; otherwise it
// ends at its TTL.
func ExampleLease_Renew() {
	ctx := context.Background()
	locks, err := holdfast.Open(ctx, "mem://shop")
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	fixed := &holdfast.Options{TTL: 200 * time.Millisecond, RenewEvery: -1}
	lease, err := locks.Mutex("orders/42", fixed).Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("renewed:", lease.Renew(ctx))

	<-lease.Done()
	fmt.Println("lost:", errors.Is(lease.Err(), holdfast.ErrLost))
	fmt.Println("release tells it too:", errors.Is(lease.Release(), holdfast.ErrLost))
	// Output:
	// renewed: <nil>
	// lost: true
	// release tells it too: true
}

// A function that gets a lease and goes on after its caller has returned takes a lease of its own.
// The name is free when the last lease is released.
func ExampleLease_Reenter() {
	ctx := context.Background()
	locks, err := holdfast.Open(ctx, "mem://shop")
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	lock := locks.Mutex("orders/42", nil)
	free := func() bool {
		lease, err := lock.TryAcquire(ctx)
		if err != nil {
			return false
		}
		return lease.Release() == nil
	}

	outer, err := lock.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	inner, err := outer.Reenter() // no round trip
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("same hold:", inner.Token() == outer.Token())
	fmt.Println(outer.Release(), "free:", free())
	fmt.Println(inner.Release(), "free:", free())
	// Output:
	// same hold: true
	// <nil> free: false
	// <nil> free: true
}

// A writer that goes on reading lets other readers in, and no writer.
func ExampleLease_Downgrade() {
	ctx := context.Background()
	locks, err := holdfast.Open(ctx, "mem://shop")
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	catalog := locks.RWMutex("catalog", nil)

	lease, err := catalog.Write.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release()
	if err := lease.Downgrade(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("now", lease.Mode())

	reader, err := catalog.Read.TryAcquire(ctx)
	fmt.Println("another reader:", err)
	defer reader.Release()
	_, err = catalog.Write.TryAcquire(ctx)
	fmt.Println("a writer is kept out:", errors.Is(err, holdfast.ErrHeld))
	// Output:
	// now shared
	// another reader: <nil>
	// a writer is kept out: true
}

// The resource remembers the highest token and refuses lower ones. Here the first holder stands
// still for longer than its lease, and then writes.
func ExampleToken() {
	ctx := context.Background()
	locks, err := holdfast.Open(ctx, "mem://shop")
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	short := &holdfast.Options{TTL: 50 * time.Millisecond, RenewEvery: -1}
	var account fence.Gate // stands at the resource

	paused, err := locks.Mutex("accounts/7", short).Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	next, err := locks.Mutex("accounts/7", nil).Acquire(ctx) // once the first lease is over
	if err != nil {
		log.Fatal(err)
	}
	defer next.Release()
	fmt.Println("later holds have higher tokens:", next.Token() > paused.Token())
	fmt.Println("next holder:", account.Admit(next.Token(), next.Mode()))
	fmt.Println("late write refused:", errors.Is(account.Admit(paused.Token(), paused.Mode()), fence.ErrStale))
	// Output:
	// later holds have higher tokens: true
	// next holder: <nil>
	// late write refused: true
}
