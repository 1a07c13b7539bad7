//go:build soak

// Package faulttest spoils real ZooKeeper servers, and the processes that use them, and checks that
// zklock promises no more than holds.
package faulttest

import (
	"context"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/drivertest/faults"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// must ends the test at an error.
var must = testserver.Must

func TestMain(m *testing.M) { faults.Main(m) }

func url(addr string) string { return "zk://" + addr }

// tick is such that sessions last from 0.4 s.
const tick = 200 * time.Millisecond

func TestFaults(t *testing.T) {
	faults.Run(t, faults.Harness{
		Start: func(t testing.TB) (faults.Server, string) {
			z := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{TickTime: tick, MaxSession: 10 * time.Second})
			return z.Members[0], z.Addrs()
		},
		URL: url,
		// A dead waiter's place lasts as long as its session, so sessions are short. Each hold is two writes that an ensemble agrees on.
		Goroutines: 3,
	})
}

// within is a context for one thing that must not take long.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}
