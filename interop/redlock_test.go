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
	testserver.Must(t, err)
	t.Cleanup(func() { c.Close() })
	theirs := func(name string, expiry time.Duration, tries int) *redsync.Mutex {
		return redsync.New(pools...).NewMutex(name, redsync.WithExpiry(expiry), redsync.WithTries(tries),
			redsync.WithTimeoutFactor(0.5), redsync.WithRetryDelay(5*time.Millisecond))
	}
	const often = 10_000 // tries of redsync that go on until the lock is free
	ours := c.Mutex("both", &holdfast.Options{TTL: long})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	must := func(ok bool, err error) {
		t.Helper()
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	excluded := func(when string) {
		t.Helper()
		if err := theirs("both", long, 1).Lock(); err == nil {
			t.Errorf("%s redsync gets the lock", when)
		}
	}

	m := theirs("both", long, often)
	must(true, m.Lock())
	if lease, err := ours.TryAcquire(ctx); !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("redsync has the lock, and Holdfast gets %v, %v", lease, err)
	}
	must(m.Unlock())
	lease, err := ours.Acquire(ctx)
	must(true, err)
	excluded("beside Holdfast")
	must(true, lease.Release())

	late := theirs("both", short, often) // it does not renew
	must(true, late.Lock())
	lease, err = ours.Acquire(ctx)
	must(true, err)
	for what, late := range map[string]func() (bool, error){"released": late.Unlock, "extended": late.Extend} {
		if ok, _ := late(); ok {
			t.Errorf("a late holder of redsync's has %s a lock", what)
		}
	}
	excluded("after a late release")
	must(true, lease.Renew(ctx))
	must(true, lease.Release())
}
