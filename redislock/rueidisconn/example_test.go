package rueidisconn_test

import (
	"context"
	"fmt"
	"log"
	"net/url"
	"os"
	"testing"

	"github.com/redis/rueidis"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/test/exampletest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/rueidisconn"
)

// A program that has a client of rueidis already shares it.
func ExampleWrap() {
	ctx := context.Background()
	u, err := url.Parse(os.Getenv("HOLDFAST_STORE"))
	if err != nil {
		log.Fatal(err)
	}
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{u.Host}, ForceSingleClient: true})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close() // after the driver
	d, err := redislock.New(ctx, rueidisconn.Wrap(client), nil)
	if err != nil {
		log.Fatal(err)
	}
	locks, err := holdfast.New(d, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	lease, err := locks.Mutex("orders/42", nil).Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("held:", lease.Name())
	if err := lease.Release(); err != nil {
		log.Fatal(err)
	}
}

func TestExamples(t *testing.T) {
	url := "redis://" + testserver.StartRedis(t, testserver.RedisOptions{}).Addr
	exampletest.Expect(t, url, "held: orders/42", ExampleWrap)
}
