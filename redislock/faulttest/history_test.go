package faulttest

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestHistories runs random histories of 20,000 operations while the server is
// paused, killed and restarted, and clients are cut off, again and again. It
// keeps on disk what it has acknowledged, so all promises hold.
func TestHistories(t *testing.T) {
	r := testserver.StartRedis(t, testserver.RedisOptions{AOF: true})
	proxy := testserver.StartProxy(t, r.Addr)
	stop, faults := make(chan struct{}), make(chan map[string]int, 1)
	go func() { faults <- storm(r, proxy, stop) }()
	drivertest.RunHistories(t, drivertest.Harness{
		Open: func(t testing.TB) driver.Driver { return persistent(t, proxy.Addr) },
		// Of the 20,000 operations some are the withdrawals of others.
		Operations: 20_000,
		Unsteady:   true,
		Leaks: []goleak.Option{
			goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/internal/testserver.(*process).watch"),
			goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/redislock/faulttest.storm"),
		},
	})
	close(stop)
	if struck := <-faults; len(struck) < 2 {
		t.Errorf("the store was hardly spoilt: %v", struck)
	} else {
		t.Logf("the store was spoilt: %v", struck)
	}
}

// storm spoils a server until it is told to stop, and returns how often it did.
func storm(r *testserver.Redis, proxy *testserver.Proxy, stop <-chan struct{}) map[string]int {
	struck := map[string]int{}
	for {
		select {
		case <-stop:
			return struck
		case <-time.After(rand.N(time.Second)):
		}
		switch rand.IntN(4) {
		case 0:
			struck["paused"]++
			r.Pause()
			time.Sleep(rand.N(200 * time.Millisecond))
			r.Resume()
		case 1:
			struck["cut off"]++
			proxy.Cut()
			time.Sleep(rand.N(50 * time.Millisecond))
			proxy.Heal()
		case 2:
			struck["replies held back"]++
			proxy.Hold(testserver.ToClient, "")
			time.Sleep(rand.N(200 * time.Millisecond))
			proxy.Heal()
		case 3:
			struck["killed"]++
			r.Kill()
			r.Start()
		}
	}
}

// persistent opens a driver, for as long as it takes.
func persistent(t testing.TB, addr string) driver.Driver {
	t.Helper()
	u := parse(t, url(addr))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		d, err := driver.Open(ctx, u)
		if err == nil {
			return d
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
