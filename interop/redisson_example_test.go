//go:build soak

package interop

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/test/exampletest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestRedissonExample: the service in Go waits for the one in Java.
func TestRedissonExample(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	dir := testserver.NeedPeers(t)
	java := library{name: "RedissonOrders.java", command: func(address string) *exec.Cmd {
		return inJavaWith(dir, filepath.Join("java", "redisson-"+redissons[0]), "RedissonOrders", address)
	}}
	orders := java.launch(t, "redis://"+server.Addr)
	orders.expect("Java charges the order", orders.answer())
	released := make(chan struct{})
	go func() {
		defer close(released)
		defer orders.tell("enough")
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if strings.HasSuffix(strings.TrimSpace(server.Ask("PUBSUB", "NUMSUB", "redisson_lock__channel:{orders/42}")), "1") {
				return // who holds a lock does not listen, so it is the service in Go
			}
		}
		t.Error("the service in Go does not wait")
	}()
	exampletest.Expect(t, "redis://"+server.Addr+"?hf.layout=redisson", "Go charges the order", Example)
	<-released
}
