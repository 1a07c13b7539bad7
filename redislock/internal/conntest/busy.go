package conntest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/redislock"
)

// keptFree fills all connections that are not for renewals and releases with requests
// that get no reply: a lease is renewed and released all the same (P2).
func keptFree(t *testing.T, server *testserver.Redis, connect func(testing.TB, string) redislock.Conn) {
	const fill, marker = 64, "no reply to this"
	proxy := testserver.StartProxy(t, server.Addr)
	conn := connect(t, proxy.Addr)
	locks := newLocks(t, conn, holdfast.ClientOptions{})
	lease, err := locks.Mutex("kept", &holdfast.Options{TTL: 5 * time.Second}).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	proxy.Hold(testserver.ToClient, marker)
	filling, empty := context.WithCancel(t.Context())
	var filled sync.WaitGroup
	for range fill {
		filled.Go(func() { conn.Do(filling, []redislock.Command{command("GET", marker)}) })
	}
	short := func(do func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		return do(ctx)
	}
	acquire := func(ctx context.Context) error { return acquireOnce(ctx, locks) }
	for short(acquire) == nil {
	} // until all are full
	// The connection of their own may not be there yet.
	for err := short(lease.Renew); err != nil; err = short(lease.Renew) {
		if lease.Err() != nil {
			t.Fatalf("P2: a renewal waits behind other requests: %v", err)
		}
	}
	if err := lease.Release(); err != nil {
		t.Errorf("a release waits behind other requests: %v", err)
	}
	if err := short(acquire); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the other requests do not wait: %v", err)
	}
	proxy.Heal()
	empty()
	filled.Wait()
}

// RunBusy keeps eight leases of 3 s for two TTLs beside 512 goroutines that take and
// release names of their own, with replies that are 20 ms late.
func RunBusy(t *testing.T, connect func(t testing.TB, address string) redislock.Conn) {
	const leases, busy, ttl, late = 8, 512, 3 * time.Second, 20 * time.Millisecond
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	proxy := testserver.StartProxy(t, server.Addr)
	locks := newLocks(t, connect(t, proxy.Addr), holdfast.ClientOptions{})
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
				lease, err := locks.Mutex(fmt.Sprint("busy/", i), nil).Acquire(ctx)
				if err != nil {
					continue
				}
				lease.Release()
			}
		})
	}
	over := time.After(2 * ttl)
	for i, lease := range held {
		select {
		case <-lease.Done():
			t.Errorf("P2: lease %d of a busy client was lost: %v", i, lease.Err())
		case <-over:
			over = closed
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

var closed = func() chan time.Time { c := make(chan time.Time); close(c); return c }()
