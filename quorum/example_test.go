package quorum_test

import (
	"context"
	"fmt"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/memlock"
	"github.com/holdfastlock/holdfast/quorum"
)

// Any three stores that fail independently can vote, for example a Redis server, a PostgreSQL database
// and an etcd cluster. Here they are in memory.
func ExampleNew() {
	var drivers []driver.Driver
	for range 3 {
		drivers = append(drivers, memlock.NewStore(nil).Client()) // driver.Open(ctx, url)
	}
	d, err := quorum.New(drivers, nil)
	if err != nil {
		panic(err)
	}
	locks, err := holdfast.New(d, nil)
	if err != nil {
		panic(err)
	}
	defer locks.Close()
	err = locks.Mutex("orders/42", nil).Do(context.Background(), func(context.Context, *holdfast.Lease) error {
		fmt.Println("charging under the votes of a majority")
		return nil
	})
	if err != nil {
		panic(err)
	}
	// Output: charging under the votes of a majority
}
