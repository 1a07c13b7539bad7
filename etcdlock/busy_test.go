package etcdlock

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestBusy keeps eight leases of 3 s for two TTLs beside 512 goroutines that take and
// release names of their own, with replies that are 20 ms late (P2).
func TestBusy(t *testing.T) {
	const leases, busy, ttl, late = 8, 512, 3 * time.Second, 20 * time.Millisecond
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	proxy := testserver.StartProxy(t, server.Addrs())
	locks, err := holdfast.Open(t.Context(), "etcd://"+proxy.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	var held []*holdfast.Lease
	for i := range leases {
		lease, err := locks.Mutex(fmt.Sprint("held/", i), &holdfast.Options{TTL: ttl}).Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, lease)
	}
	proxy.Delay(testserver.ToClient, late)
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	for i := range busy {
		working.Go(func() {
			for ctx.Err() == nil {
				if lease, err := locks.Mutex(fmt.Sprint("busy/", i), nil).Acquire(ctx); err == nil {
					lease.Release()
				}
			}
		})
	}
	over := make(chan struct{})
	time.AfterFunc(2*ttl, func() { close(over) })
	for i, lease := range held {
		select {
		case <-lease.Done():
			t.Errorf("P2: lease %d of a busy client was lost: %v", i, lease.Err())
		case <-over:
		}
	}
	cancel()
	working.Wait()
	proxy.Heal()
	for i, lease := range held {
		if err := lease.Release(); err != nil {
			t.Errorf("lease %d: %v", i, err)
		}
	}
}
