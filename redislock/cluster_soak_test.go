//go:build soak

package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/redislock"
)

func inCluster(t testing.TB, c *testserver.Cluster) driver.Driver {
	t.Helper()
	conn, err := redislock.Dial(context.Background(), &url.URL{Scheme: "redis+cluster", Host: c.Addrs()})
	testserver.Must(t, err)
	d, err := redislock.New(t.Context(), conn, nil)
	testserver.Must(t, err)
	return d
}

// TestSubscriptionMoves: a waiter was subscribed at the server that has the name, and is subscribed at
// another when the name is released. Nobody listens at the first any more, but the waiter hears of its
// grant. It must not be taken for dead there, because then the name would be granted twice (P1).
func TestSubscriptionMoves(t *testing.T) {
	t.Parallel()
	c := testserver.StartCluster(t, testserver.ClusterOptions{})
	holder, waiter := inCluster(t, c), inCluster(t, c)
	defer holder.Close()
	defer waiter.Close()
	queue, _ := driver.As[driver.Queuer](waiter)
	subscribed := func() (n int) {
		for _, r := range c.Servers {
			n += len(strings.Fields(r.Ask("PUBSUB", "CHANNELS", "holdfast:*")))
		}
		return n
	}
	for i := range 60 {
		req := driver.Request{Name: fmt.Sprint("moves/", i), Owner: fmt.Sprint("holder", i), TTL: 20 * time.Second}
		held, err := holder.Try(t.Context(), req)
		testserver.Must(t, err)
		req.Owner = fmt.Sprint("waiter", i)
		if _, err := queue.Enqueue(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("a second request: %v", err)
		}
		for _, r := range c.Servers {
			_ = r.Ask("CLIENT", "KILL", "TYPE", "pubsub")
		}
		for end := time.Now().Add(time.Minute); subscribed() < 2; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the clients do not subscribe again")
			}
		}
		testserver.Must(t, holder.Release(t.Context(), []driver.Grant{held})[0])
		g, err := queue.Wait(t.Context(), req)
		if errors.Is(err, driver.ErrHeld) { // it has heard first that messages may have been lost
			g, err = queue.Enqueue(t.Context(), req)
		}
		testserver.Must(t, err)
		if err := waiter.Renew(t.Context(), []driver.Grant{g})[0].Err; err != nil {
			t.Errorf("P1: round %d: a grant that the store has taken back was delivered: %v", i, err)
		}
		if err := waiter.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
			t.Errorf("round %d: %v", i, err)
		}
	}
}
