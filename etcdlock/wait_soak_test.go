//go:build soak

package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
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
			lease := waiter.recordLocked(req.Name, req.Owner).session.Load().id
			waiter.mu.Unlock()
			if _, err := waiter.main.etcd.Revoke(t.Context(), lease); err != nil {
				t.Error(err)
			}
		}, driver.ErrHeld},
		"its key is deleted": {func(t *testing.T, waiter *client, req driver.Request) {
			waiter.mu.Lock()
			key := waiter.key(waiter.recordLocked(req.Name, req.Owner))
			waiter.mu.Unlock()
			if _, err := waiter.main.etcd.Delete(t.Context(), key); err != nil {
				t.Error(err)
			}
		}, driver.ErrHeld},
		"the stream of watches breaks": {func(t *testing.T, waiter *client, req driver.Request) {
			waiter.mu.Lock()
			defer waiter.mu.Unlock()
			waiter.watches.cancel()
		}, driver.ErrHeld},
	} {
		t.Run(name, func(t *testing.T) {
			holder, waiter := dial(t, server.Addrs(), nil), dial(t, server.Addrs(), nil)
			held := take(t, holder, request(name))
			req := request(name)
			line(t, waiter, req)
			begun := make(chan struct{})
			go func() { // when it watches
				defer close(begun)
				for {
					waiter.mu.Lock()
					p := waiter.recordLocked(req.Name, req.Owner).place
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
			release(t, holder, held)
		})
	}
}

// listens reports whether all that it follows has begun.
func (v *waitCall) listens() bool {
	return v.fs[0] != nil && !slices.ContainsFunc(v.fs[:], func(f *follower) bool { return f != nil && !f.begun })
}

// TestDeadCrowd: a hundred clients that are killed together while they wait delay a live one
// behind them by three polls at most (P7). Their leases end together, so no claim has to run
// out before the next begins.
func TestDeadCrowd(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{})
	c := dial(t, server.Addrs(), nil)
	held := take(t, c, request("crowd"))
	var dead [100]*client
	var wg sync.WaitGroup
	for i := range dead {
		dead[i] = dial(t, server.Addrs(), &Options{})
		req := request("crowd")
		line(t, dead[i], req)
		wg.Go(func() { await(t.Context(), dead[i], req) }) // until it is dead
	}
	live, req := dial(t, server.Addrs(), nil), request("crowd")
	line(t, live, req)
	granted := make(chan error, 1)
	go func() {
		_, err := await(t.Context(), live, req)
		granted <- err
	}()
	for _, d := range dead {
		crash(d)
	}
	killed := time.Now()
	release(t, c, held)
	must(t, <-granted)
	wg.Wait()
	delay := time.Since(killed)
	t.Logf("granted %v after they were killed", delay)
	if atMost := 3 * max(driver.DefaultPoll, time.Duration(live.minSeconds+1)*time.Second/2); delay > atMost {
		t.Errorf("P7: a hundred dead waiters have delayed a live one by %v, more than %v", delay, atMost)
	}
}

// TestBusyBelow: a free name is granted to a request that takes a place, and a held one is not, while keys of longer
// names come and go below it all the time, in the layout Stock (P7, P1).
func TestBusyBelow(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	a, b, puts := dial(t, server.Addrs(), &Options{Layout: Stock}), dial(t, server.Addrs(), &Options{Layout: Stock}), 0
	put := func() {
		puts++
		take(t, b, request(fmt.Sprint("orders/", puts)))
	}
	quiet := intercept(a, func(_ context.Context, _ *etcdserverpb.TxnRequest, send sender) (*etcdserverpb.TxnResponse, error) {
		put() // right before each transaction
		return send()
	})
	g, err := a.Enqueue(t.Context(), request("orders"))
	if err != nil {
		t.Fatalf("P7: a place at a free name: %v", err)
	}
	if _, err := a.Try(t.Context(), request("orders")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("P1: a name that is held: %v", err)
	}
	for range 2 * table.Nearby { // more than an exclusive request looks at
		put()
	}
	waiter := request("orders")
	line(t, a, waiter)
	quiet()
	granted := make(chan error, 1)
	go func() {
		_, err := a.Wait(t.Context(), waiter)
		granted <- err
	}()
	select {
	case err := <-granted:
		t.Errorf("P1: a waiter for a name that is held: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	release(t, a, g)
	if err := <-granted; err != nil {
		t.Errorf("P7: a waiter: %v", err)
	}
}
