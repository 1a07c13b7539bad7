//go:build soak

package redislock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestSpinPauses: pauses double up to the longest, vary, and end with the wait.
func TestSpinPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, withoutChannels{t}, &Options{Wait: Spin})
		req := driver.Request{Name: "n", Owner: "a", TTL: time.Minute}
		if _, err := c.Enqueue(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
			t.Fatal(err)
		}
		longest, varied := firstSpin, false
		for i := range 30 {
			start := time.Now()
			if _, err := c.Wait(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
				t.Fatal(err)
			}
			took := time.Since(start)
			if took < longest/2 || took > longest {
				t.Errorf("pause %d took %v, not %v to %v", i, took, longest/2, longest)
			}
			varied = varied || took != longest && took != longest/2
			longest = min(2*longest, longestSpin)
		}
		if !varied {
			t.Error("no pause was jittered")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		start := time.Now()
		if _, err := c.Wait(ctx, req); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Millisecond {
			t.Errorf("with 1 ms left Wait took %v and returned %v", time.Since(start), err)
		}
	})
}

// TestSpinnersAndOthers: waiters that spin and waiters with a channel stand in one queue, and each
// is granted the hold in its order.
func TestSpinnersAndOthers(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	spin, push := open(t, dialResp(t, server.Addr), &Options{Wait: Spin}), open(t, dialResp(t, server.Addr), nil)
	if spin.Losses() != nil || push.Losses() == nil {
		t.Error("a spinning client is told of losses, or another is not")
	}
	ctx := t.Context()
	req := func(owner string) driver.Request {
		return driver.Request{Name: "n", Owner: owner, TTL: 10 * time.Second}
	}
	g, err := push.Try(ctx, req("holder"))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []struct {
		*client
		owner string
	}{{spin, "first"}, {push, "second"}, {spin, "third"}} {
		if _, err := w.Enqueue(ctx, req(w.owner)); !errors.Is(err, driver.ErrHeld) {
			t.Fatal(err)
		}
	}
	release := func(c *client, g driver.Grant) {
		t.Helper()
		if err := c.Release(ctx, []driver.Grant{g})[0]; err != nil {
			t.Fatal(err)
		}
	}
	grantTo := func(owner string) (g driver.Grant) {
		t.Helper()
		for err := driver.ErrHeld; errors.Is(err, driver.ErrHeld); {
			spin.Wait(ctx, req(owner))
			if g, err = spin.Enqueue(ctx, req(owner)); err != nil && !errors.Is(err, driver.ErrHeld) {
				t.Fatal(err)
			}
		}
		return g
	}
	release(push, g)
	release(spin, grantTo("first"))
	if g, err = push.Wait(ctx, req("second")); err != nil {
		t.Fatal(err)
	}
	if _, err := spin.Enqueue(ctx, req("third")); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("the third got %v while the second holds", err)
	}
	release(push, g)
	release(spin, grantTo("third"))
}
