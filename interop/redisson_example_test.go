//go:build soak

package interop

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/test/exampletest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestExample: the service in Go waits for the one in Java, which uses Curator or Redisson.
func TestExample(t *testing.T) {
	dir := testserver.NeedPeers(t)
	zookeeper := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{}).Addrs()
	locks, err := holdfast.Open(t.Context(), "zk://"+zookeeper+"/billing")
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	redis := testserver.StartRedis(t, testserver.RedisOptions{})
	for _, c := range []struct {
		program, archives, address, store string
		waits                             func() bool
	}{
		{"Orders", "java", zookeeper, "zk://" + zookeeper + "/billing", func() bool {
			info, err := locks.Inspect(t.Context(), "orders/42")
			return err == nil && len(info.Holders) == 1 && len(info.Waiters) == 1
		}},
		{"RedissonOrders", filepath.Join("java", "redisson-"+redissons[0]), "redis://" + redis.Addr, "redis://" + redis.Addr + "?hf.layout=redisson", func() bool {
			// Who holds a lock does not listen, so it is the service in Go.
			return strings.HasSuffix(strings.TrimSpace(redis.Ask("PUBSUB", "NUMSUB", "redisson_lock__channel:{orders/42}")), "1")
		}},
	} {
		java := library{name: c.program, command: func(address string) *exec.Cmd { return inJavaWith(dir, c.archives, c.program, address) }}
		orders := java.launch(t, c.address)
		orders.expect("Java charges the order", orders.answer())
		released := make(chan struct{})
		go func() {
			defer close(released)
			defer orders.tell("enough")
			for end := time.Now().Add(patience); !c.waits(); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Errorf("%s: the service in Go does not wait", c.program)
					return
				}
			}
		}()
		exampletest.Expect(t, c.store, "Go charges the order", Example)
		<-released
	}
}
