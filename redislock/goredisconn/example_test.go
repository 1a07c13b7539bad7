package goredisconn_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/test/exampletest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/goredisconn"
)

// A program that has a client of go-redis already shares it.
func ExampleWrap() {
	ctx := context.Background()
	options, err := redis.ParseURL(os.Getenv("HOLDFAST_STORE"))
	if err != nil {
		log.Fatal(err)
	}
	client := redis.NewClient(options)
	defer client.Close() // after the driver
	d, err := redislock.New(ctx, goredisconn.Wrap(client), nil)
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
