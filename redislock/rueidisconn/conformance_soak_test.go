//go:build soak

package rueidisconn

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/internal/conntest"
)

func TestConformanceSpin(t *testing.T)   { conform(t, false, redislock.Spin, wrapped) }
func TestConformanceValkey(t *testing.T) { conform(t, true, redislock.Push, fromURL) }

func TestConn(t *testing.T) {
	t.Run("URL", func(t *testing.T) { conntest.Run(t, fromURL) })
	t.Run("lines", func(t *testing.T) { conntest.Run(t, withLines) })
	t.Run("Wrap", func(t *testing.T) { conntest.Run(t, wrapped) })
}

func TestMoved(t *testing.T) { conntest.RunMoved(t, fromURL) }

func TestBusy(t *testing.T) { conntest.RunBusy(t, fromURL) }

func TestReactions(t *testing.T) {
	t.Run("URL", func(t *testing.T) { conntest.RunReactions(t, fromURL) })
	t.Run("lines", func(t *testing.T) { conntest.RunReactions(t, withLines) })
}

// TestConnectingForAnother: one request makes the connection for all, and is given up;
// another, whose context goes on, is carried out all the same.
func TestConnectingForAnother(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	connecting, given := make(chan struct{}), atomic.Bool{}
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{server.Addr}, DisableCache: true, ForceSingleClient: true, DisableRetry: true,
		DialCtxFn: func(ctx context.Context, address string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
			if given.CompareAndSwap(true, false) {
				close(connecting)
				<-ctx.Done()
				time.Sleep(20 * time.Millisecond) // so that this request ends while the other still waits
				return nil, ctx.Err()
			}
			return dialer.DialContext(ctx, "tcp", address)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	c, ping := Wrap(client), []redislock.Command{{Args: []string{"PING"}}}
	given.Store(true)
	c.Do(t.Context(), []redislock.Command{{Args: []string{"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no"}}})
	hasty, cancel := context.WithCancel(t.Context())
	go func() {
		for hasty.Err() == nil { // the end of the old connection may come first
			c.Do(hasty, ping)
		}
	}()
	<-connecting
	done := make(chan error, 1)
	go func() { done <- c.Do(t.Context(), ping)[0].Err }()
	time.AfterFunc(50*time.Millisecond, cancel) // by then the other waits for the connection, too
	if err := <-done; err != nil {
		t.Errorf("a request failed because another, which made the connection, was given up: %v", err)
	}
}
