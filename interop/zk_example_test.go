package interop

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/holdfastlock/holdfast"
)

// A service in Go that has one lock with java/Orders.java or java/RedissonOrders.java, services in Java. With the
// first one the store is zk://zk1.example.org,zk2.example.org,zk3.example.org/billing, and the name is the rest of
// the path; with the second one it is redis://redis.example.org:6379?hf.layout=redisson.
func Example() {
	ctx := context.Background()
	locks, err := holdfast.Open(ctx, os.Getenv("HOLDFAST_STORE"))
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	err = locks.Mutex("orders/42", nil).Do(ctx, func(ctx context.Context, lease *holdfast.Lease) error {
		fmt.Println("Go charges the order") // ctx ends when the lock is no longer trusted
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}
