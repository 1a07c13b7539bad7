//go:build soak

package redislock

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// silence ends the subscription of a client, as a connection that breaks does, and returns when the server knows
// that nobody is subscribed to the client's channel.
func silence(t *testing.T, admin *respConn, c *client, stop func()) {
	t.Helper()
	stop()
	for admin.do(t, "PUBLISH", c.layout.channel(c.id), "s").(int64) != 0 {
	}
}

// TestUnsubscribedWaiterKeepsItsPlace: the connections of a client broke, and it asks for a place, or
// confirms it, before it has subscribed again. It lives, so the next in the queue must not be granted
// first (P8). Once it has subscribed again it is as any other: when it dies it is skipped.
func TestUnsubscribedWaiterKeepsItsPlace(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	ctx := t.Context()
	for name, c := range map[string]struct {
		confirms bool // it has taken its place before, and confirms it
		dies     bool // it subscribes again, and then dies
		first    string
	}{
		"takes its place":           {first: "broken"},
		"confirms its place":        {confirms: true, first: "broken"},
		"subscribes again and dies": {dies: true, first: "next"},
	} {
		t.Run(name, func(t *testing.T) {
			admin := dialResp(t, server.Addr)
			defer admin.Close()
			broken := open(t, dialResp(t, server.Addr), nil)
			ask := func(c *client, owner string) {
				t.Helper()
				if _, err := c.Enqueue(ctx, driver.Request{Name: name, Owner: owner, TTL: 10 * time.Second}); !errors.Is(err, driver.ErrHeld) {
					t.Fatalf("Enqueue behind a holder: %v", err)
				}
			}
			holder := open(t, dialResp(t, server.Addr), nil)
			g, err := holder.Try(ctx, driver.Request{Name: name, Owner: "holder", TTL: 10 * time.Second})
			testserver.Must(t, err)
			if c.confirms {
				ask(broken, "broken")
			}
			silence(t, admin, broken, broken.unsubscribe)
			ask(broken, "broken")
			if c.dies {
				stop, err := broken.conn.Subscribe(ctx, broken.layout.channel(broken.id), broken.receive)
				testserver.Must(t, err)
				ask(broken, "broken")
				silence(t, admin, broken, stop)
			}
			ask(open(t, dialResp(t, server.Addr), nil), "next")
			testserver.Must(t, holder.Release(ctx, []driver.Grant{g})[0])
			info, err := holder.Inspect(ctx, name)
			if err != nil || len(info.Holders) != 1 || info.Holders[0].Owner != c.first {
				t.Fatalf("P8: %+v, %v, not a hold of %q", info, err, c.first)
			}
			if c.dies {
				return
			}
			got, err := broken.Enqueue(ctx, driver.Request{Name: name, Owner: "broken", TTL: 10 * time.Second})
			if err != nil || got.Token != info.Holders[0].Token {
				t.Errorf("P7: a waiter without news of its grant asked and got %+v, %v", got, err)
			}
		})
	}
}

// TestNothingIsKept: clients keep nothing of holds that they have released, of waiters that were served, nor of
// those that gave up.
func TestNothingIsKept(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	a, b := open(t, dialResp(t, server.Addr), nil), open(t, dialResp(t, server.Addr), nil)
	release := func(c *client, g driver.Grant) { testserver.Must(t, c.Release(t.Context(), []driver.Grant{g})...) }
	for i := range 2000 {
		r := driver.Request{Name: fmt.Sprint("many/", i), Owner: fmt.Sprint("a", i), TTL: 20 * time.Second}
		held, err := a.Try(t.Context(), r)
		testserver.Must(t, err)
		r.Owner = fmt.Sprint("b", i)
		if _, err := b.Enqueue(t.Context(), r); !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("Enqueue behind a holder: %v", err)
		}
		next := driver.Grant{Request: r}
		if i%2 == 0 { // the waiter gives up
			release(b, next)
		}
		release(a, held)
		if i%2 == 1 {
			next, err = b.Wait(t.Context(), r)
			testserver.Must(t, err)
			release(b, next)
		}
	}
	for _, c := range []*client{a, b} {
		c.mu.Lock()
		if len(c.waiters) != 0 || len(c.losses) != 0 {
			t.Errorf("P9: %d waiters and %d losses are left", len(c.waiters), len(c.losses))
		}
		c.mu.Unlock()
	}
}
