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

// Two goroutines sell the last items of one shop. In a store that processes
// share they could as well be two processes on two hosts.
func Example() {
	ctx := context.Background()
	locks, err := holdfast.Open(ctx, "mem://shop") // for a file: file:///var/lib/app/locks
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	stock := 3
	var stockroom fence.Gate // refuses a holder that comes after a later one
	sell := func() error {
		return locks.Mutex("stock/anvil", nil).Do(ctx, func(ctx context.Context, lease *holdfast.Lease) error {
			return stockroom.Do(lease.Token(), lease.Mode(), func() error {
				if stock == 0 {
					return errors.New("sold out")
				}
				stock--
				return nil
			})
		})
	}

	results := make(chan error)
	for range 5 {
		go func() { results <- sell() }()
	}
	sold := 0
	for range 5 {
		if err := <-results; err == nil {
			sold++
		}
	}
	fmt.Println(sold, "sold,", stock, "left")
	// Output: 3 sold, 0 left
}

// The store's package is imported for its URL scheme:
//
//	import _ "github.com/holdfastlock/holdfast/memlock"
func ExampleOpen() {
	ctx := context.Background()
	locks, err := holdfast.Open(ctx, "mem://shop?hf.prefix=billing/")
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	_, err = holdfast.Open(ctx, "mem://shop?hf.prefx=billing/")
	fmt.Println(err)
	// Output: holdfast: open mem://shop?hf.prefx=billing%2F: unknown URL parameter "hf.prefx" for mem://; known are: hf.prefix, hf.ttl
}

// The context of Acquire bounds the wait, not the hold.
func ExampleLock_Acquire() {
	ctx := context.Background()
	locks, err := holdfast.Open(ctx, "mem://shop")
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	lock := locks.Mutex("orders/42", nil)

	patience, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	lease, err := lock.Acquire(patience) // free: no wait
	if err != nil {
		log.Fatal(err)
	}

	_, err = lock.Acquire(patience) // held: gives up when patience ends
	fmt.Println("timed out:", errors.Is(err, context.DeadlineExceeded), "while held:",
		errors.Is(err, holdfast.ErrHeld))
	fmt.Println("the first lease:", lease.Err())

	// Returns the loss, if there was one: the work may then have run unprotected.
	fmt.Println("release:", lease.Release())
	// Output:
	// timed out: true while held: true
	// the first lease: <nil>
	// release: <nil>
}

// Every replica starts a job, and one of them does it.
func ExampleLock_TryAcquire() {
	ctx := context.Background()
	for _, replica := range []string{"replica 1", "replica 2"} {
		locks, err := holdfast.Open(ctx, "mem://shop")
		if err != nil {
			log.Fatal(err)
		}
		defer locks.Close()

		lease, err := locks.Mutex("reports/nightly", nil).TryAcquire(ctx)
		switch {
		case errors.Is(err, holdfast.ErrHeld):
			fmt.Println(replica, "leaves it to another")
		case err != nil:
			fmt.Println(replica, "could not ask:", err)
		default:
			fmt.Println(replica, "writes the report")
			defer lease.Release()
		}
	}
	// Output:
	// replica 1 writes the report
	// replica 2 leaves it to another
}

// Do is Acquire, a context that ends with the lock, and Release. An error of the
// function is joined with that of the release.
func ExampleLock_Do() {
	ctx := context.Background()
	locks, err := holdfast.Open(ctx, "mem://shop")
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	noMoney := errors.New("card declined")
	err = locks.Mutex("orders/42", nil).Do(ctx, func(ctx context.Context, lease *holdfast.Lease) error {
		// Hand ctx to everything that the lock protects.
		return noMoney
	})
	fmt.Println(errors.Is(err, noMoney), errors.Is(err, holdfast.ErrLost))
	// Output: true false
}

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
