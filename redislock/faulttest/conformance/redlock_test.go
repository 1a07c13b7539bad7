package conformance

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/quorum"
)

// servers are the nodes of a Redlock.
type servers []*testserver.Redis

func startNodes(t testing.TB, n int, o testserver.RedisOptions) servers {
	t.Helper()
	s := make(servers, n)
	for i := range s {
		s[i] = testserver.StartRedis(t, o)
	}
	return s
}

func (s servers) addresses() []string {
	var all []string
	for _, server := range s {
		all = append(all, server.Addr)
	}
	return all
}

// redlock opens a quorum of the nodes at these addresses. Longest is the longest TTL of nodes that are not durable.
func redlock(t testing.TB, addresses []string, longest time.Duration, o quorum.Options) driver.Driver {
	t.Helper()
	query := "hf.maxttl=" + longest.String()
	if o.Durable {
		query = "hf.forget=go"
	}
	var nodes []quorum.Node
	for _, address := range addresses {
		nodes = append(nodes, quorum.Node{Name: address, Open: func(ctx context.Context) (driver.Driver, error) {
			return driver.Open(ctx, &url.URL{Scheme: "redis", Host: address, RawQuery: query})
		}})
	}
	d, err := quorum.Open(t.Context(), "redlock:test", nodes, &o)
	testserver.Must(t, err)
	return d
}

func TestConformanceRedlock(t *testing.T) {
	nodes := startNodes(t, testserver.Long(3, 5), testserver.RedisOptions{})
	// The suite bounds requests itself, and a machine that is busy is no fault of a node.
	const longest = 10 * time.Minute
	o := quorum.Options{NodeTimeout: 2 * time.Second}
	drivertest.Run(t, drivertest.Harness{
		TTL:        time.Second,
		Operations: testserver.Long(80, 800), // of each history: each is ten requests
		Untimed:    !testserver.Soak,
		Open:       func(t testing.TB) driver.Driver { return redlock(t, nodes.addresses(), longest, o) },
		Transport: func(t testing.TB) (driver.Driver, drivertest.Transport) {
			ways, addresses := testserver.StartProxies(t, nodes.addresses()...)
			return redlock(t, addresses, longest, o), ways
		},
		Parallel: 4,
	})
}
