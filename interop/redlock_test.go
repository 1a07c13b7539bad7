//go:build soak

package interop

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	pool "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestRedlock: Holdfast's Redlock in the layout setnx, and redsync over the same servers, exclude each
// other, and change nothing of each other's.
func TestRedlock(t *testing.T) {
	t.Parallel()
	var addresses []string
	var pools []pool.Pool
	for range 3 {
		server := testserver.StartRedis(t, testserver.RedisOptions{AOF: true})
		addresses = append(addresses, server.Addr)
		pools = append(pools, goredis.NewPool(connect(t, server.Addr)))
	}
	store := "redlock://" + strings.Join(addresses, ",") + "?hf.layout=setnx&hf.durable=yes"
	c, err := holdfast.Open(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	theirs := func(name string, expiry time.Duration, tries int) *redsync.Mutex {
		return redsync.New(pools...).NewMutex(name, redsync.WithExpiry(expiry), redsync.WithTries(tries),
			redsync.WithTimeoutFactor(0.5), redsync.WithRetryDelay(5*time.Millisecond))
	}
	const often = 10_000 // tries of redsync that go on until the lock is free
	ours := c.Mutex("both", &holdfast.Options{TTL: long})
	held := func(who string) {
		t.Helper()
		if lease, err := ours.TryAcquire(t.Context()); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("%s has the lock, and Holdfast gets %v, %v", who, lease, err)
		}
	}
	acquire := func() *holdfast.Lease {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		lease, err := ours.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return lease
	}

	m := theirs("both", long, often)
	if err := m.Lock(); err != nil {
		t.Fatal(err)
	}
	held("redsync")
	if ok, err := m.Unlock(); !ok || err != nil {
		t.Fatalf("redsync's unlock: %v, %v", ok, err)
	}
	lease := acquire()
	if err := theirs("both", long, 1).Lock(); err == nil {
		t.Error("Holdfast has the lock, and redsync gets it")
	}
	if err := lease.Release(); err != nil {
		t.Fatal(err)
	}

	late := theirs("both", short, often) // it does not renew
	if err := late.Lock(); err != nil {
		t.Fatal(err)
	}
	lease = acquire()
	if ok, _ := late.Unlock(); ok {
		t.Error("a late holder of redsync's has released a lock")
	}
	if ok, _ := late.Extend(); ok {
		t.Error("a late holder of redsync's has extended a lock")
	}
	if err := theirs("both", long, 1).Lock(); err == nil {
		t.Error("redsync gets a lock that a late holder cannot have released")
	}
	if err := lease.Renew(t.Context()); err != nil {
		t.Errorf("after a late release by redsync: %v", err)
	}
	if err := lease.Release(); err != nil {
		t.Fatal(err)
	}
}
