package fallback_test

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/fallback"
	"github.com/holdfastlock/holdfast/memlock"
)

// With a second store locks are taken there. The options say that a lock that two have at the same
// time harms nobody, so that nobody waits for the end of the first store's holds.
func ExampleNew() {
	store := chaos.New(memlock.NewStore(nil).Client(), chaos.Options{})
	var second driver.Driver = memlock.NewStore(nil).Client()
	d, err := fallback.New(store, second, &fallback.Options{Silence: 20 * time.Millisecond, After: -1})
	if err != nil {
		panic(err)
	}
	locks, err := holdfast.New(d, nil)
	if err != nil {
		panic(err)
	}
	store.Partition()
	lease, err := locks.Mutex("orders/42", nil).Acquire(context.Background())
	if err != nil {
		panic(err)
	}
	fmt.Println("degraded:", lease.Degraded(), "token:", lease.Token())
	fmt.Println(lease.Release())
	store.Heal()
	locks.Close()
	// Output:
	// degraded: true token: 0
	// <nil>
}
