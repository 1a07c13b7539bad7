package redislock

import (
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// tenantRights are those that docs/stores/redis.md names for a user of the names below one prefix.
const tenantRights = "~holdfast:{billing/* ~holdfast:store &holdfast:wake:* " +
	"+ping +select +eval +evalsha +subscribe +publish +pubsub|numsub +time +scan +get +set " +
	"+zadd +zrem +zrange +zrank +zscore +zcard +hset +hget +hdel +pexpire"

// TestTenantRights: a user that may only use the keys below a prefix locks names there, and no others. The error
// names what could be granted.
func TestTenantRights(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	if got := server.Ask(append([]string{"ACL", "SETUSER", "billing", "on", ">s3cret"}, strings.Fields(tenantRights)...)...); got != "OK" {
		t.Fatal(got)
	}
	open := func(parameters string) *holdfast.Client {
		t.Helper()
		c, err := holdfast.Open(t.Context(), "redis://billing:s3cret@"+server.Addr+parameters)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	a, b := open("?hf.prefix=billing/"), open("?hf.prefix=billing/")
	lease, err := a.RWMutex("x", nil).Write.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	next := make(chan error, 1)
	go func() {
		lease, err := b.RWMutex("x", nil).Write.Acquire(t.Context())
		if err == nil {
			err = lease.Release()
		}
		next <- err
	}()
	if err := lease.Renew(t.Context()); err != nil {
		t.Error(err)
	}
	if err := lease.Downgrade(t.Context()); err != nil {
		t.Error(err)
	}
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
	if err := <-next; err != nil {
		t.Error(err)
	}
	permit, err := a.Semaphore("s", 2, nil).TryAcquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Break(t.Context(), "s", permit.Token()); err != nil {
		t.Error(err)
	}
	for _, err := range b.List(t.Context(), "") {
		if err != nil {
			t.Error(err)
		}
	}
	_, err = open("").Mutex("orders/42", nil).TryAcquire(t.Context())
	if err == nil || !strings.Contains(err.Error(), "~holdfast:* &holdfast:*") {
		t.Errorf("a name beyond the prefix: %v", err)
	}
}
