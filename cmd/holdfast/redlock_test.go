//go:build soak && linux

package main

import (
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestRedlock: servers that are new count at once after redlock init, and locks go on when one is dead. With another
// dead the store cannot be reached.
func TestRedlock(t *testing.T) {
	w := newWorld(t)
	var servers []*testserver.Redis
	var addresses []string
	for range 3 {
		s := testserver.StartRedis(t, testserver.RedisOptions{})
		servers, addresses = append(servers, s), append(addresses, s.Addr)
	}
	store := "redlock://" + strings.Join(addresses, ",")
	w.run(75, "--store", store, "run", "-n", "reports/nightly", "--", "true").expectErr("may have forgotten who holds it")
	w.run(0, "redlock", "init", store).expectOut("All servers count")
	w.run(0, "--store", store, "run", "-n", "reports/nightly", "--", "true")
	servers[1].Kill()
	w.run(0, "--store", store, "run", "-n", "reports/nightly", "--", "true")
	w.run(69, "redlock", "init", store).expectErr(addresses[1])
	servers[2].Kill()
	w.run(69, "--store", store, "run", "-n", "reports/nightly", "--", "true").expectErr("no majority")
}
