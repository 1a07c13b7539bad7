package memlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/memlock"
)

// Two clients of one store are as separate as two processes: what the code under
// test does with a lock of Redis it does with this one.
func ExampleNewStore() {
	ctx := context.Background()
	store := memlock.NewStore(nil)
	var clients []*holdfast.Client
	for range 2 {
		c, err := holdfast.New(store.Client(), nil)
		if err != nil {
			log.Fatal(err)
		}
		defer c.Close()
		clients = append(clients, c)
	}

	lease, err := clients[0].Mutex("orders/42", nil).Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release()
	_, err = clients[1].Mutex("orders/42", nil).TryAcquire(ctx)
	fmt.Println(errors.Is(err, holdfast.ErrHeld))
	// Output: true
}

// What happens when a holder vanishes? A test need not wait for it.
func ExampleStore_Advance() {
	ctx := context.Background()
	store := memlock.NewStore(nil)
	vanished, err := holdfast.New(store.Client(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer vanished.Close()
	next, err := holdfast.New(store.Client(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer next.Close()

	never := &holdfast.Options{TTL: time.Minute, RenewEvery: -1}
	if _, err := vanished.Mutex("orders/42", never).Acquire(ctx); err != nil {
		log.Fatal(err)
	}
	store.Advance(2 * time.Minute)
	lease, err := next.Mutex("orders/42", nil).TryAcquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(lease.Release())
	// Output: <nil>
}
