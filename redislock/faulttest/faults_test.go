//go:build soak

// Package faulttest spoils a real Redis server and the processes that use it,
// and checks that its driver promises no more than holds, and no less.
package faulttest

import (
	"net"
	neturl "net/url"
	"testing"

	"github.com/holdfastlock/holdfast/drivertest/faults"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	_ "github.com/holdfastlock/holdfast/redislock" // redis://
)

func TestMain(m *testing.M) { faults.Main(m) }

func url(addr string) string { return "redis://" + addr }

func parse(t testing.TB, raw string) *neturl.URL {
	t.Helper()
	u, err := neturl.Parse(raw)
	must(t, err)
	return u
}

func TestFaults(t *testing.T) {
	faults.Run(t, faults.Harness{
		Start: func(t testing.TB) (faults.Server, string) {
			r := testserver.StartRedis(t, testserver.RedisOptions{AOF: true})
			return r, r.Addr
		},
		URL:    url,
		Pushes: "SUBSCRIBE",
	})
}

func port(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}
