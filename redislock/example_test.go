package redislock_test

import (
	"context"
	"fmt"
	"log"
	"net/url"
	"os"
	"testing"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/test/exampletest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/redisson"
)

// The URL of a store may have a password, so it comes from the environment:
// redis://app:secret@redis.example.org:6379/0
func Example() {
	ctx := context.Background()
	locks, err := holdfast.Open(ctx, os.Getenv("HOLDFAST_STORE"))
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	err = locks.Mutex("orders/42", nil).Do(ctx, func(ctx context.Context, lease *holdfast.Lease) error {
		fmt.Println("charging under", lease.Name()) // ctx ends when the lock is no longer trusted
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}

func TestExamples(t *testing.T) {
	url := "redis://" + testserver.StartRedis(t, testserver.RedisOptions{}).Addr
	exampletest.Expect(t, url, "charging under orders/42", Example)
	exampletest.Expect(t, url, "connected", Example_redisson)
}

// A service in Go shares permits and a latch with services in Java that use Redisson: they are
// getSemaphore("connections") and getCountDownLatch("loaded") there.
func Example_redisson() {
	ctx := context.Background()
	u, err := url.Parse(os.Getenv("HOLDFAST_STORE"))
	if err != nil {
		log.Fatal(err)
	}
	conn, err := redislock.Dial(ctx, u)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	shared, err := redisson.New(ctx, conn)
	if err != nil {
		log.Fatal(err)
	}
	defer shared.Close()

	loaded, err := shared.Latch("loaded")
	if err != nil {
		log.Fatal(err)
	}
	if err := loaded.Await(ctx); err != nil { // until the Java service has counted down to zero
		log.Fatal(err)
	}
	connections, err := shared.Semaphore("connections")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := connections.Create(ctx, 10, 0); err != nil { // if nobody has yet
		log.Fatal(err)
	}
	if err := connections.Acquire(ctx, 1); err != nil {
		log.Fatal(err)
	}
	defer connections.Release(ctx, 1) // sent even if ctx has ended
	fmt.Println("connected")
}
