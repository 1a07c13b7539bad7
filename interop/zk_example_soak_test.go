//go:build soak

package interop

import (
	"os/exec"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/test/exampletest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

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
