//go:build soak

package etcdlock

import (
	"context"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/busytest"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestBusy: a busy client keeps its leases when replies are late (P2).
func TestBusy(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	proxy := chaos.StartProxy(t, server.Addrs())
	delay := func(by time.Duration) { proxy.Delay(chaos.ToClient, by) }
	busytest.Run(t, delay, func() *holdfast.Client {
		locks, err := holdfast.Open(t.Context(), "etcd://"+proxy.Addr)
		if err != nil {
			t.Fatal(err)
		}
		return locks
	})
}

// TestKeptFree: while nothing is answered on the connection that all other requests go
// by, a lease is renewed and released all the same (P2).
func TestKeptFree(t *testing.T) {
	const marker = "no reply to this"
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	proxy := chaos.StartProxy(t, server.Addrs())
	u, err := driver.ParseURL("etcd://" + proxy.Addr)
	if err != nil {
		t.Fatal(err)
	}
	d, err := open(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	c := d.(*client)
	locks, err := holdfast.New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	if _, err := c.etcd.Get(t.Context(), marker); err != nil {
		t.Fatal(err)
	}
	for c.spareRoute().etcd == c.etcd {
		time.Sleep(time.Millisecond) // then look again
	}
	lease, err := locks.Mutex("kept", &holdfast.Options{TTL: 3 * time.Second}).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	proxy.Hold(chaos.ToClient, marker)
	short := func(do func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return do(ctx)
	}
	if err := short(lease.Renew); err != nil {
		t.Errorf("P2: a renewal waits behind other requests: %v", err)
	}
	if err := lease.Release(); err != nil {
		t.Errorf("a release waits behind other requests: %v", err)
	}
	if err := short(func(ctx context.Context) error { _, err := c.etcd.Get(ctx, marker); return err }); err == nil {
		t.Error("the other requests do not wait")
	}
	proxy.Heal()
}
