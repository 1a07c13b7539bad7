package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/fence"
	"github.com/holdfastlock/holdfast/memlock"
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

// New takes a driver that the store's package made, here for a store that only this test has.
func ExampleNew() {
	locks, err := holdfast.New(memlock.NewStore(nil).Client(), &holdfast.ClientOptions{Prefix: "billing/"})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	lease, err := locks.Mutex("orders/42", nil).Acquire(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release()
	fmt.Println(lease.Name(), lease.Token())
	// Output: orders/42 1
}

// One client serves the whole program. Close gives back what is still held.
func ExampleClient() {
	ctx := context.Background()
	locks, err := holdfast.Open(ctx, "mem://shop")
	if err != nil {
		log.Fatal(err)
	}
	lease, err := locks.Mutex("orders/42", nil).Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("close:", locks.Close())
	fmt.Println(lease.Err())

	_, err = locks.Mutex("orders/43", nil).Acquire(ctx)
	fmt.Println(err)
	// Output:
	// close: <nil>
	// lease released
	// holdfast: acquire "orders/43": closed
}

// A Lock does no I/O: its first use returns what is wrong with it.
func ExampleLock() {
	locks, err := holdfast.Open(context.Background(), "mem://shop")
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	for _, lock := range []*holdfast.Lock{
		locks.Mutex("orders//42", nil),
		locks.Mutex("orders/42", &holdfast.Options{TTL: -time.Second}),
		locks.Semaphore("printers", 0, nil),
	} {
		_, err := lock.Acquire(context.Background())
		fmt.Println(err)
	}
	// Output:
	// holdfast: acquire "orders//42": name "orders//42" has an empty path element: no slash at the start or the end, and no two together
	// holdfast: acquire "orders/42": option TTL is -1s: it must be positive
	// holdfast: acquire "printers": a semaphore with 0 slots: 1 to 1048576 are allowed
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
