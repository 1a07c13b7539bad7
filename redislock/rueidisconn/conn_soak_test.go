//go:build soak

package rueidisconn

import (
	"testing"

	"github.com/redis/rueidis"

	"github.com/holdfastlock/holdfast/internal/test/conntest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/redislock"
)

// closing is a Conn that closes its client too.
type closing struct {
	redislock.Conn
	client rueidis.Client
}

func (c closing) Close() error { c.client.Close(); return nil }

// connect returns one over a client with rueidis' own defaults, which send some commands again.
func connect(t testing.TB, address string) redislock.Conn {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address}, DisableCache: true})
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	return closing{Wrap(client), client}
}

func TestConn(t *testing.T) { conntest.Run(t, connect) }

// TestWrapCluster: a client of a cluster is refused, because a batch of renewals would fail.
func TestWrapCluster(t *testing.T) {
	t.Parallel()
	c := testserver.StartCluster(t, testserver.ClusterOptions{})
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{c.Servers[0].Addr}, DisableCache: true})
	testserver.Must(t, err)
	defer client.Close()
	conntest.Refuses(t, Wrap(client), "redis+cluster://")
}
