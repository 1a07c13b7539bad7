//go:build soak

package redisson

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/redislock"
)

// redissonWithin bounds what takes no time.
const redissonWithin = time.Minute

// dialled returns a client on a connection of its own.
func dialled(t *testing.T, raw string) *Client {
	t.Helper()
	u, err := driver.ParseURL(raw)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := redislock.Dial(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), conn.Close()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// handsOver lets two clients pass a permit, and a latch, so often that they would not be done in time if they
// only polled.
func handsOver(t *testing.T, a, b *Client, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), redissonWithin)
	defer cancel()
	one, err1 := a.Semaphore(name)
	other, err2 := b.Semaphore(name)
	closed, err3 := a.Latch(name + "/latch")
	waits, err4 := b.Latch(name + "/latch")
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	if _, err := one.Create(ctx, 1, 0); err != nil {
		t.Fatal(err)
	}
	for range 2 * int(redissonWithin/time.Second) {
		acquired, opened := make(chan error, 1), make(chan error, 1)
		_, err := closed.Create(ctx, 1)
		if err := errors.Join(err, one.Acquire(ctx, 1)); err != nil {
			t.Fatal(err)
		}
		go func() { acquired <- other.Acquire(ctx, 1) }()
		go func() { opened <- waits.Await(ctx) }()
		time.Sleep(2 * time.Millisecond) // mostly they wait by then
		_, err = closed.CountDown(ctx)
		if err := errors.Join(err, one.Release(ctx, 1), <-acquired, <-opened, other.Release(ctx, 1)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRedissonCounts(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	a, b := dialled(t, "redis://"+server.Addr), dialled(t, "redis://"+server.Addr)
	handsOver(t, a, b, "n")
}

// TestRedissonCountsAfterLostConnection: what was published while a waiter was not connected is not missed.
func TestRedissonCountsAfterLostConnection(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	proxy := chaos.StartProxy(t, server.Addr)
	a, b := dialled(t, "redis://"+server.Addr), dialled(t, "redis://"+proxy.Addr)
	one, _ := a.Semaphore("n")
	other, err := b.Latch("latch")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), redissonWithin)
	defer cancel()
	latch, _ := a.Latch("latch")
	if _, err := latch.Create(ctx, 1); err != nil {
		t.Fatal(err)
	}
	opened := make(chan error, 1)
	go func() { opened <- other.Await(ctx) }()
	channel := "redisson_countdownlatch__channel__{latch}"
	for !strings.HasSuffix(strings.TrimSpace(server.Ask("PUBSUB", "NUMSUB", channel)), "1") {
		if ctx.Err() != nil {
			t.Fatal("the waiter did not subscribe")
		}
		time.Sleep(time.Millisecond)
	}
	proxy.Cut()
	if _, err := latch.CountDown(ctx); err != nil {
		t.Fatal(err)
	}
	proxy.Heal()
	if err := <-opened; err != nil && !errors.Is(err, ErrUncertain) {
		t.Error(err)
	}
	if _, err := one.Available(ctx); err != nil {
		t.Error(err)
	}
}

// TestRedissonCountsInCluster: messages go by sharded channels, also after the slot has moved; and names that
// Redisson handles wrongly are refused.
func TestRedissonCountsInCluster(t *testing.T) {
	t.Parallel()
	servers := testserver.StartCluster(t, testserver.ClusterOptions{})
	a, b := dialled(t, "redis+cluster://"+servers.Addrs()), dialled(t, "redis+cluster://"+servers.Addrs())
	handsOver(t, a, b, "n")
	at := servers.Master("n")
	if channels := strings.Fields(at.Ask("PUBSUB", "SHARDCHANNELS")); !slices.Contains(channels, "redisson_sc:{n}") {
		t.Errorf("the master of the name knows the sharded channels %q", channels)
	}
	var slot int
	if _, err := fmt.Sscan(at.Ask("CLUSTER", "KEYSLOT", "n"), &slot); err != nil {
		t.Fatal(err)
	}
	to := servers.Servers[0]
	if to == at {
		to = servers.Servers[1]
	}
	servers.Move(slot, at, to, 0)
	handsOver(t, a, b, "n")

	for _, name := range []string{"a{}b", "{}a{b}", "a}b{c}", "a}b"} {
		_, err1 := a.Semaphore(name)
		_, err2 := a.Latch(name)
		if err1 == nil || err2 == nil {
			t.Errorf("the name %q was not refused: %v, %v", name, err1, err2)
		}
	}
	if _, err := a.Semaphore("{a}b"); err != nil {
		t.Errorf("a name with a hash tag: %v", err)
	}
}
