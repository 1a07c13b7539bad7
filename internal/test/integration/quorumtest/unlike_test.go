//go:build soak && linux

// Package quorumtest tests package quorum over stores of different kinds, which only a module with all client
// libraries can open.
package quorumtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/quorum"

	_ "github.com/holdfastlock/holdfast/etcdlock"
	_ "github.com/holdfastlock/holdfast/redislock"
	_ "github.com/holdfastlock/holdfast/sqllock/pgconn"
)

// hanging bounds what takes no time.
const hanging = 2 * time.Minute

// server can be killed, and started again with its data.
type server interface {
	Kill()
	Start()
}

func open(ctx context.Context, rawURL string) (driver.Driver, error) {
	u, err := driver.ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	return driver.Open(ctx, u)
}

// newClient opens the quorum of the stores at these URLs.
func newClient(ctx context.Context, urls []string) (*holdfast.Client, error) {
	var nodes []quorum.Node
	for i, u := range urls {
		nodes = append(nodes, quorum.Node{
			Name: fmt.Sprint("store ", i+1),
			Open: func(ctx context.Context) (driver.Driver, error) { return open(ctx, u) },
		})
	}
	// All three write to their disks before they answer, so one that restarts counts at once.
	d, err := quorum.Open(ctx, "quorum:of unlike stores", nodes, &quorum.Options{Durable: true})
	if err != nil {
		return nil, err
	}
	return holdfast.New(d, &holdfast.ClientOptions{TTL: 10 * time.Second})
}

// TestUnlikeStores: a Redis server, an etcd and a PostgreSQL vote. Each is killed and started again in turn,
// while clients want one lock: they go on, and never two of them have it.
func TestUnlikeStores(t *testing.T) {
	redis := testserver.StartRedis(t, testserver.RedisOptions{AOF: true})
	etcd := testserver.StartEtcd(t, testserver.EtcdOptions{})
	postgres := testserver.StartPostgres(t)
	urls := []string{"redis://" + redis.Addr + "?hf.forget=go", "etcd://" + etcd.Addrs(), postgres.URL("postgres")}
	var inside, turns atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for range 2 {
		c, err := newClient(t.Context(), urls)
		testserver.Must(t, err)
		t.Cleanup(func() { c.Close() })
		clients.Go(func() {
			for ctx.Err() == nil {
				lease, err := c.Mutex("orders/42", nil).Acquire(ctx)
				if err != nil {
					if ctx.Err() == nil && errors.Is(err, holdfast.ErrHeld) {
						t.Errorf("Acquire: %v", err)
					}
					time.Sleep(time.Millisecond)
					continue
				}
				if n := inside.Add(1); n != 1 && lease.Err() == nil {
					t.Errorf("%d are inside", n)
				}
				time.Sleep(time.Millisecond)
				inside.Add(-1)
				turns.Add(1)
				lease.Release() // an error says that a store is dead
			}
		})
	}
	goOn := func(what string) {
		t.Helper()
		from := turns.Load()
		for end := time.Now().Add(hanging); turns.Load() < from+5; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %d turns within %v", what, turns.Load()-from, hanging)
			}
		}
	}
	goOn("all stores serve")
	for i, s := range []server{redis, etcd.Members[0], postgres} {
		s.Kill()
		goOn(fmt.Sprintf("store %d is dead", i+1))
		s.Start()
		for end := time.Now().Add(hanging); ; time.Sleep(10 * time.Millisecond) {
			within, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			d, err := open(within, urls[i])
			cancel()
			if err == nil {
				d.Close()
				break
			}
			if time.Now().After(end) {
				t.Fatalf("store %d does not serve again: %v", i+1, err)
			}
		}
		goOn(fmt.Sprintf("store %d serves again", i+1))
	}
	stop()
	clients.Wait()
}
