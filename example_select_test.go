package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/holdfastlock/holdfast"
)

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
