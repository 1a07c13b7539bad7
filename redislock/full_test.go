package redislock

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestFullMemory: a server whose memory is full goes on to renew, release, break and withdraw, in all layouts.
func TestFullMemory(t *testing.T) {
	for _, o := range []*Options{
		{}, {Layout: SetNX}, {Layout: Redisson}, {Layout: Redisson, Redisson: RedissonFair},
		{Layout: Redisson, Redisson: RedissonFenced},
	} {
		t.Run(fmt.Sprint(o.Layout, " ", o.Redisson), func(t *testing.T) {
			server := testserver.StartRedis(t, testserver.RedisOptions{})
			d, err := New(t.Context(), dialResp(t, server.Addr), o)
			testserver.Must(t, err)
			defer d.Close()
			admin := dialResp(t, server.Addr)
			defer admin.Close()
			take := func(what string, r driver.Request) driver.Grant {
				t.Helper()
				r.Name, r.Owner, r.TTL = what, "AAAAAAAAAAAAAAAAAAAAAAAAAA", 30*time.Second
				g, err := d.Try(t.Context(), r)
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				return g
			}
			grants := []driver.Grant{take("mutex", driver.Request{})}
			if o.Layout == SetNX {
				grants = append(grants, take("minimum", driver.Request{MinHold: time.Second}))
			}
			if d.Caps().Shared {
				grants = append(grants, take("reader", driver.Request{Mode: driver.Shared}))
			}
			if d.Caps().Slots {
				grants = append(grants, take("permits", driver.Request{Mode: driver.Slot, Slots: 3, Permits: 2}))
			}
			broken := take("broken", driver.Request{})
			l, downgrades := driver.As[driver.Downgrader](d)
			downgrades = downgrades && d.Caps().Shared
			var writer driver.Grant
			if downgrades {
				writer = take("writer", writing(0))
			}
			admin.do(t, "CONFIG", "SET", "maxmemory", "1")

			fresh := driver.Request{Name: "fresh", Owner: "BBBBBBBBBBBBBBBBBBBBBBBBBB", TTL: 20 * time.Second}
			if _, err := d.Try(t.Context(), fresh); err == nil || errors.Is(err, driver.ErrUncertain) {
				t.Errorf("a new hold: %v", err)
			}
			for range 2 { // the second is of an owner that has a tombstone, if withdrawn
				if err := d.Release(t.Context(), []driver.Grant{{Request: fresh}})[0]; err != nil {
					t.Errorf("a withdrawal: %v", err)
				}
			}
			for i, r := range d.Renew(t.Context(), grants) {
				if r.Err != nil {
					t.Errorf("renewal of %s: %v", grants[i].Name, r.Err)
				}
			}
			if b, ok := driver.As[driver.Operator](d); ok {
				info, err := b.Inspect(t.Context(), broken.Name)
				if err != nil || len(info.Holders) != 1 {
					t.Fatalf("Inspect: %+v, %v", info, err)
				}
				if err := b.Break(t.Context(), broken.Name, info.Holders[0].Token); err != nil {
					t.Errorf("a break: %v", err)
				}
			}
			if downgrades {
				for range 2 { // the second as if the answer to the first were lost
					if _, err := l.Downgrade(t.Context(), writer); err != nil {
						t.Errorf("a downgrade: %v", err)
					}
				}
			}
			for i, err := range d.Release(t.Context(), grants) {
				if err != nil {
					t.Errorf("release of %s: %v", grants[i].Name, err)
				}
			}
			for _, g := range grants {
				if info, err := d.(driver.Operator).Inspect(t.Context(), g.Name); err != nil || len(info.Holders) > 0 {
					t.Errorf("after its release %s has %+v, %v", g.Name, info.Holders, err)
				}
			}
		})
	}
}

// TestOwnNames: P10: where a lock is at its bare name, a name that is one of Holdfast's own keys is refused before
// any I/O. It would be in the way of another lock.
func TestOwnNames(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	for _, o := range []*Options{{Layout: SetNX}, {Layout: Redisson}, {Layout: SetNX, Prefix: "mine"}} {
		conn := dialResp(t, server.Addr)
		d, err := New(t.Context(), conn, o)
		testserver.Must(t, err)
		conn.Close() // what does I/O now fails
		prefix := "holdfast"
		if o.Prefix != "" {
			prefix = o.Prefix
		}
		for _, name := range []string{prefix + ":{victim}:setnx", prefix + ":store"} {
			r := driver.Request{Name: name, Owner: "AAAAAAAAAAAAAAAAAAAAAAAAAA", TTL: 20 * time.Second}
			_, err := d.Try(t.Context(), r)
			if err == nil || errors.Is(err, driver.ErrUncertain) || !strings.Contains(err.Error(), "begins with "+prefix) {
				t.Errorf("%s: the name %s: %v", o.Layout, name, err)
			}
		}
	}
}
