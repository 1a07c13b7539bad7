//go:build soak

package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestWaiting: what can happen to a waiter besides being granted the name.
func TestWaiting(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	for name, c := range map[string]struct {
		happens func(t *testing.T, waiter *client, req driver.Request)
		want    error
	}{
		"its lease is ended": {func(t *testing.T, waiter *client, req driver.Request) {
			waiter.mu.Lock()
			lease := waiter.record(req.Name, req.Owner).session.Load().id
			waiter.mu.Unlock()
			if _, err := waiter.etcd.Revoke(t.Context(), lease); err != nil {
				t.Error(err)
			}
		}, driver.ErrHeld},
		"its key is deleted": {func(t *testing.T, waiter *client, req driver.Request) {
			waiter.mu.Lock()
			key := waiter.key(waiter.record(req.Name, req.Owner))
			waiter.mu.Unlock()
			if _, err := waiter.etcd.Delete(t.Context(), key); err != nil {
				t.Error(err)
			}
		}, driver.ErrHeld},
		"it is withdrawn": {func(t *testing.T, waiter *client, req driver.Request) {
			if err := waiter.Release(t.Context(), []driver.Grant{{Request: req}})[0]; err != nil {
				t.Error(err)
			}
		}, driver.ErrHeld},
		"the client is closed": {func(t *testing.T, waiter *client, req driver.Request) {
			waiter.Close()
		}, driver.ErrClosed},
		"the stream of watches breaks": {func(t *testing.T, waiter *client, req driver.Request) {
			waiter.hub.mu.Lock()
			defer waiter.hub.mu.Unlock()
			waiter.hub.stream.cancel()
		}, driver.ErrHeld},
	} {
		t.Run(name, func(t *testing.T) {
			holder, waiter := dial(t, server.Addrs(), nil), dial(t, server.Addrs(), nil)
			defer holder.Close()
			defer waiter.Close()
			held := take(t, holder, request(name))
			req := request(name)
			line(t, waiter, req)
			begun := make(chan struct{})
			go func() { // when it watches
				defer close(begun)
				for {
					waiter.mu.Lock()
					p := waiter.places[waiter.record(req.Name, req.Owner)]
					watches := p != nil && p.waits != nil && p.waits.listens()
					waiter.mu.Unlock()
					if watches {
						c.happens(t, waiter, req)
						return
					}
					time.Sleep(time.Millisecond)
				}
			}()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if _, err := waiter.Wait(ctx, req); !errors.Is(err, c.want) {
				t.Errorf("Wait returned %v, not %v", err, c.want)
			}
			<-begun
			if err := holder.Release(t.Context(), []driver.Grant{held})[0]; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestManyWaiters: more wait than are looked at, some leave, and all others are
// served in their order.
func TestManyWaiters(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	c := dial(t, server.Addrs(), nil)
	defer c.Close()
	g := take(t, c, request("many"))
	const n = 4 * table.Nearby
	type served struct {
		i   int
		g   driver.Grant
		err error
	}
	order := make(chan served, n)
	var reqs []driver.Request
	for i := range n {
		req := request("many")
		line(t, c, req)
		reqs = append(reqs, req)
		go func() {
			for {
				g, err := c.Wait(t.Context(), req)
				if errors.Is(err, driver.ErrHeld) {
					if g, err = c.Enqueue(t.Context(), req); errors.Is(err, driver.ErrHeld) {
						continue
					}
				}
				order <- served{i, g, err}
				return
			}
		}()
	}
	gone := map[int]bool{}
	for _, i := range []int{0, 5, n - 2} { // these ask again, and come last or not at all
		gone[i] = true
		if err := c.Release(t.Context(), []driver.Grant{{Request: reqs[i]}})[0]; err != nil {
			t.Fatal(err)
		}
	}
	last := -1
	for range n {
		select {
		case s := <-order:
			if gone[s.i] {
				continue // it was refused: an owner that was withdrawn comes to nothing
			}
			t.Errorf("P1: %d was granted a held name (%v)", s.i, s.err)
		case <-time.After(20 * time.Millisecond):
		}
		if err := c.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
			t.Fatal(err)
		}
		var s served
		for {
			select {
			case s = <-order:
			case <-time.After(20 * time.Second):
				t.Fatal("P7: nobody was granted a free name")
			}
			if !gone[s.i] {
				break
			}
		}
		if s.err != nil || s.i < last {
			t.Fatalf("P8: %d came after %d (%v)", s.i, last, s.err)
		}
		if last, g = s.i, s.g; last == n-1 {
			return
		}
	}
}

// TestFull: beyond its quota etcd takes no puts. Holds are renewed and released
// all the same, nothing hangs, and it goes on when there is room.
func TestFull(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick, Quota: 1 << 20})
	c := dial(t, server.Addrs(), nil)
	defer c.Close()
	held, goes := take(t, c, request("held")), take(t, c, request("goes"))
	var err error
	for i := 0; err == nil; i++ {
		_, err = c.etcd.Put(t.Context(), fmt.Sprint("fill", i), strings.Repeat("x", 64<<10))
	}
	if _, err := c.Try(t.Context(), request("other")); err == nil || errors.Is(err, driver.ErrHeld) || errors.Is(err, driver.ErrUncertain) {
		t.Errorf("P6: a full store answered %v", err)
	}
	if r := c.Renew(t.Context(), []driver.Grant{held})[0]; r.Err != nil {
		t.Errorf("P2: a full store did not renew: %v", r.Err)
	}
	passed := held
	passed.Token, passed.HandedOver = held.Token+1, true
	if r := c.Renew(t.Context(), []driver.Grant{passed})[0]; r.Err != nil {
		t.Errorf("P2: a full store did not renew a hold that was handed over: %v", r.Err)
	}
	if err := c.Release(t.Context(), []driver.Grant{goes})[0]; err != nil {
		t.Errorf("P4: a full store did not release: %v", err)
	}
	again := dial(t, server.Addrs(), nil) // an operator wants to look
	defer again.Close()
	if info, err := again.Inspect(t.Context(), "held"); err != nil || len(info.Holders) != 1 {
		t.Errorf("P9: a full store shows %+v, %v", info, err)
	}
	r, err := c.etcd.Delete(t.Context(), "fill", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.etcd.Compact(t.Context(), r.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.etcd.Defragment(t.Context(), server.Members[0].Addr); err != nil {
		t.Fatal(err)
	}
	if _, err := c.etcd.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	take(t, c, request("other"))
}

// TestGrantAfterEnd: a hold whose session was found to have ended while the request
// that moves its key to another was under way can be renewed, and its key goes when
// nobody does.
func TestGrantAfterEnd(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	c := dial(t, server.Addrs(), nil)
	defer c.Close()
	req := request("moved")
	req.TTL = c.caps.MinTTL
	before := take(t, c, req)
	r := c.reserve(&req)
	first := r.session.Load()
	c.end(first)
	select {
	case loss := <-c.losses:
		if len(loss.Owners) != 1 || loss.Owners[0] != req.Owner {
			t.Errorf("P2: of the end of a lease was told as %+v", loss)
		}
	default:
		t.Error("P2: of the end of a lease nothing was told")
	}
	g, err := c.adopt(t.Context(), r, &req, &table.Entry{Key: c.key(r), Created: c.layout.Created(before.Token)}, c.whole(&req))
	c.unreserve(r)
	if err != nil || g.Token != before.Token || r.session.Load() == first {
		t.Fatalf("the key was moved as %+v, %v", g, err)
	}
	if renewal := c.Renew(t.Context(), []driver.Grant{g})[0]; renewal.Err != nil {
		t.Errorf("P2: a hold whose key is there is not renewed: %v", renewal.Err)
	}
	known := true
	for deadline := time.Now().Add(20 * time.Second); known && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		// The lease is kept alive, so it is the client that deletes the key.
		if _, err := c.session(t.Context(), seconds(req.TTL), c.clock.Now()); err != nil {
			t.Fatal(err)
		}
		c.mu.Lock()
		known = c.isKnownLocked(r)
		c.mu.Unlock()
	}
	if n := keys(t, c, req.Name); n > 0 || known {
		t.Errorf("P7: of a hold that nobody renews %d key stays; its record: %v", n, known)
	}
}

func TestShortTTL(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{})
	locks, err := holdfast.Open(t.Context(), "etcd://"+server.Addrs())
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	if got := locks.Caps().MinTTL; got != 2*time.Second {
		t.Errorf("the shortest lease of etcd as it is set up by default is taken for %v", got)
	}
	_, err = locks.Mutex("x", &holdfast.Options{TTL: 1500 * time.Millisecond}).Acquire(t.Context())
	if err == nil || !strings.Contains(err.Error(), "2s") {
		t.Errorf("P10: a TTL that etcd cannot keep: %v", err)
	}
}
