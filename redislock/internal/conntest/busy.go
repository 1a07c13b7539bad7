package conntest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/internal/test/busytest"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/redislock"
)

// keptFree fills all connections that are not for renewals and releases with requests
// that get no reply: a lease is renewed and released all the same (P2).
func keptFree(t *testing.T, server *testserver.Redis, connect func(testing.TB, string) redislock.Conn) {
	const fill, marker = 64, "no reply to this"
	proxy := chaos.StartProxy(t, server.Addr)
	conn := connect(t, proxy.Addr)
	locks := newLocks(t, conn, holdfast.ClientOptions{})
	lease, err := locks.Mutex("kept", &holdfast.Options{TTL: 5 * time.Second}).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	proxy.Hold(chaos.ToClient, marker)
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

// RunBusy checks that a busy client keeps its leases when replies are late.
func RunBusy(t *testing.T, connect func(t testing.TB, address string) redislock.Conn) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	proxy := chaos.StartProxy(t, server.Addr)
	delay := func(by time.Duration) { proxy.Delay(chaos.ToClient, by) }
	busytest.Run(t, delay, func() *holdfast.Client { return newLocks(t, connect(t, proxy.Addr), holdfast.ClientOptions{}) })
}
