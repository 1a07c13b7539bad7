//go:build soak

package etcdlock

import (
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestDeadCrowd: a hundred clients that are killed together while they wait delay a live one
// behind them by three polls at most (P7). Their leases end together, so no claim has to run
// out before the next begins.
func TestDeadCrowd(t *testing.T) {
	const dead = 100
	server := testserver.StartEtcd(t, testserver.EtcdOptions{})
	c := dial(t, server.Addrs(), nil)
	defer c.Close()
	held := take(t, c, request("crowd"))
	w := startCrowd(t, dead, crowdJob{Addrs: server.Addrs(), Name: "crowd", Way: "holdfast", Once: true})
	w.say()
	for end := time.Now().Add(time.Minute); keys(t, c, "crowd") < 1+dead; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("of %d clients %d wait", dead, keys(t, c, "crowd")-1)
		}
	}
	locks, err := holdfast.Open(t.Context(), "etcd://"+server.Addrs())
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	granted := make(chan error, 1)
	go func() {
		lease, err := locks.Mutex("crowd", nil).Acquire(t.Context())
		if err == nil {
			err = lease.Release()
		}
		granted <- err
	}()
	for keys(t, c, "crowd") < 2+dead {
		time.Sleep(time.Millisecond) // then look again
	}
	w.kill()
	killed := time.Now()
	if err := c.Release(t.Context(), []driver.Grant{held})[0]; err != nil {
		t.Fatal(err)
	}
	if err := <-granted; err != nil {
		t.Fatal(err)
	}
	delay := time.Since(killed)
	t.Logf("granted %v after they were killed", delay)
	if atMost := 3 * locks.Caps().Poll; delay > atMost {
		t.Errorf("P7: a hundred dead waiters have delayed a live one by %v, more than %v", delay, atMost)
	}
}
