package interop

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/test/exampletest"
	"github.com/holdfastlock/holdfast/internal/testserver"
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

// TestExample: the service in Go waits for the one in Java.
func TestExample(t *testing.T) {
	server := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{})
	dir := testserver.NeedPeers(t)
	java := library{name: "Orders.java", command: func(address string) *exec.Cmd { return inJava(dir, "Orders", address) }}
	orders := java.launch(t, server.Addrs())
	orders.expect("Java charges the order", orders.answer())
	locks, err := holdfast.Open(t.Context(), "zk://"+server.Addrs()+"/billing")
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	released := make(chan struct{})
	go func() {
		defer close(released)
		defer orders.tell("enough")
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			info, err := locks.Inspect(t.Context(), "orders/42")
			if err != nil {
				t.Error(err)
				return
			}
			if len(info.Holders) == 1 && len(info.Waiters) == 1 {
				return
			}
		}
		t.Error("the service in Go does not wait")
	}()
	exampletest.Expect(t, "zk://"+server.Addrs()+"/billing", "Go charges the order", Example)
	<-released
}
