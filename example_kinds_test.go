package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/memlock"
)

// Readers share; a writer is alone. The name as a whole is one lock: its write
// half is what Mutex returns.
func ExampleRWMutex() {
	ctx := context.Background()
	locks, err := holdfast.Open(ctx, "mem://shop")
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	catalog := locks.RWMutex("catalog", nil)

	first, err := catalog.Read.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	second, err := catalog.Read.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = catalog.Write.TryAcquire(ctx)
	fmt.Println("with two readers:", errors.Is(err, holdfast.ErrHeld))

	if err := errors.Join(first.Release(), second.Release()); err != nil {
		log.Fatal(err)
	}
	writer, err := catalog.Write.TryAcquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer writer.Release()
	fmt.Println("without:", writer.Mode())
	// Output:
	// with two readers: true
	// without: exclusive
}

// Four licences for all hosts together; a big job takes three of them.
func ExampleClient_Semaphore() {
	ctx := context.Background()
	locks, err := holdfast.Open(ctx, "mem://shop")
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	small := locks.Semaphore("licences/cad", 4, nil)
	big := locks.Semaphore("licences/cad", 4, &holdfast.Options{Permits: 3})

	one, err := small.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	three, err := big.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = small.TryAcquire(ctx)
	fmt.Println("a fifth:", errors.Is(err, holdfast.ErrHeld))
	if err := errors.Join(one.Release(), three.Release()); err != nil {
		log.Fatal(err)
	}

	// Everybody must give the same number of slots.
	lease, err := small.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release()
	_, err = locks.Semaphore("licences/cad", 5, nil).TryAcquire(ctx)
	fmt.Println("five slots:", errors.Is(err, holdfast.ErrMismatch))
	// Output:
	// a fifth: true
	// five slots: true
}

// A transfer needs both accounts. Two opposite transfers cannot wait for each
// other: All takes locks in the same order everywhere.
func ExampleAll() {
	ctx := context.Background()
	locks, err := holdfast.Open(ctx, "mem://bank")
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	balance := map[string]int{"accounts/1": 100, "accounts/2": 100}
	transfer := func(from, to string, amount int) error {
		both := holdfast.All(locks.Mutex(from, nil), locks.Mutex(to, nil))
		return both.Do(ctx, func(context.Context, *holdfast.MultiLease) error {
			balance[from] -= amount
			balance[to] += amount
			return nil
		})
	}
	done := make(chan error)
	go func() { done <- transfer("accounts/1", "accounts/2", 30) }()
	go func() { done <- transfer("accounts/2", "accounts/1", 10) }()
	fmt.Println(<-done, <-done, balance)
	// Output: <nil> <nil> map[accounts/1:80 accounts/2:120]
}

// All or nothing: one that is held leaves the others free.
func ExampleMultiLock() {
	ctx := context.Background()
	locks, err := holdfast.Open(ctx, "mem://bank")
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	a, b := locks.Mutex("accounts/1", nil), locks.Mutex("accounts/2", nil)

	held, err := b.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer held.Release()
	_, err = holdfast.All(a, b).TryAcquire(ctx)
	fmt.Println("both:", errors.Is(err, holdfast.ErrHeld))

	lease, err := a.TryAcquire(ctx)
	fmt.Println("the free one:", err)
	defer lease.Release()
	// Output:
	// both: true
	// the free one: <nil>
}

// Each of the names has its own token, for its own guard.
func ExampleMultiLease() {
	ctx := context.Background()
	locks, err := holdfast.New(memlock.NewStore(nil).Client(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	lease, err := holdfast.All(locks.Mutex("b", nil), locks.Mutex("a", nil)).Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(lease.Tokens(), lease.Err())
	fmt.Println(lease.Release(), lease.Err())
	// Output:
	// map[a:1 b:2] <nil>
	// <nil> lease released
}
