//go:build soak

package etcdlock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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
		"it is withdrawn": {func(t *testing.T, waiter *client, req driver.Request) {
			if err := waiter.Release(t.Context(), []driver.Grant{{Request: req}})[0]; err != nil {
				t.Error(err)
			}
		}, driver.ErrHeld},
		"the client is closed": {func(t *testing.T, waiter *client, req driver.Request) {
			waiter.Close()
		}, driver.ErrClosed},
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

// messages asks a member how many requests it has got, and messages by streams.
func messages(t testing.TB, addr string) (n int) {
	t.Helper()
	resp, err := http.Get("http://" + addr + "/metrics")
	must(t, err)
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if count, ok := strings.CutPrefix(lines.Text(), "grpc_server_msg_received_total{"); ok {
			f, err := strconv.ParseFloat(count[strings.LastIndexByte(count, ' ')+1:], 64)
			must(t, err)
			n += int(f)
		}
	}
	if n == 0 {
		t.Fatal("the member has no count of messages")
	}
	return n
}

// listens reports whether all that it follows has begun.
func (v *waitCall) listens() bool {
	return v.fs[0] != nil && !slices.ContainsFunc(v.fs[:], func(f *follower) bool { return f != nil && !f.begun })
}

// TestHandOverCost: a hand-off takes a few messages, however many wait. Polls are rare, so that what is asked is
// asked for a hand-off.
func TestHandOverCost(t *testing.T) {
	const atMost, turns = 8, 10 // of each: delete, look, watch and its end; and the keepalives of the waiters
	for _, waiters := range []int{16, 256} {
		t.Run(fmt.Sprint(waiters), func(t *testing.T) {
			server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: 5 * time.Second})
			c, err := connect(t.Context(), dialClient(t, server.Addrs()), true, &Options{Poll: time.Minute})
			must(t, err)
			defer c.Close()
			ctx, stop := context.WithCancel(t.Context())
			var waiting sync.WaitGroup
			defer waiting.Wait()
			defer stop()
			hold, granted := take(t, c, request("queue")), make(chan driver.Grant, waiters)
			for range waiters {
				req := request("queue")
				line(t, c, req)
				waiting.Go(func() {
					if g, err := await(ctx, c, req); err == nil {
						granted <- g
					} else if ctx.Err() == nil {
						t.Error(err)
					}
				})
			}
			for n := 0; n < waiters; time.Sleep(time.Millisecond) { // until all of them listen
				n = 0
				c.mu.Lock()
				for r := range c.records.all() {
					if p := r.place; p != nil && p.waits != nil && p.waits.listens() {
						n++
					}
				}
				c.mu.Unlock()
			}
			before := messages(t, server.Addrs())
			for range turns {
				release(t, c, hold)
				hold = <-granted
			}
			n := messages(t, server.Addrs()) - before
			t.Logf("%d hand-offs took %d messages", turns, n)
			if n > turns*atMost {
				t.Errorf("P8: %d hand-offs among %d took %d messages, at most %d are in order", turns, waiters, n, turns*atMost)
			}
		})
	}
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

// TestBusyBelow: a free name is granted, and a held one is not, while keys of longer
// names, or of another store, come and go below it all the time (P7, P1).
func TestBusyBelow(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	for what, o := range map[string]struct {
		one, other  *Options
		name, below string
	}{
		"orders beside orders/N in the layout stock": {&Options{Layout: Stock, Prefix: "s"}, &Options{Layout: Stock, Prefix: "s"}, "orders", "orders/"},
		"the stores holdfast and holdfast/lock":      {nil, &Options{Prefix: "holdfast/lock"}, "lock", "x"},
		"the stores holdfast and holdfast/lock/deep": {nil, &Options{Prefix: "holdfast/lock/deep"}, "deep", "x"},
	} {
		a, b, puts := dial(t, server.Addrs(), o.one), dial(t, server.Addrs(), o.other), 0
		quiet := atomic.Bool{}
		put := func() {
			if !quiet.Load() {
				puts++
				take(t, b, request(fmt.Sprint(o.below, puts)))
			}
		}
		intercept(a, func(_ context.Context, _ *etcdserverpb.TxnRequest, send sender) (*etcdserverpb.TxnResponse, error) {
			put() // right before each transaction
			return send()
		})
		g, err := a.Try(t.Context(), request(o.name))
		if err != nil {
			t.Fatalf("%s: P7: a free name: %v", what, err)
		}
		if _, err := a.Try(t.Context(), request(o.name)); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("%s: P1: a name that is held: %v", what, err)
		}
		for range 2 * table.Nearby { // more than an exclusive request looks at
			put()
		}
		third := request(o.name)
		if _, err := a.Enqueue(t.Context(), third); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("%s: P1: a name that is held: %v", what, err)
		}
		quiet.Store(true)
		granted := make(chan error, 1)
		go func() {
			_, err := a.Wait(t.Context(), third)
			granted <- err
		}()
		select {
		case err := <-granted:
			t.Errorf("%s: P1: a waiter for a name that is held: %v", what, err)
		case <-time.After(50 * time.Millisecond):
		}
		release(t, a, g)
		if err := <-granted; err != nil {
			t.Errorf("%s: P7: a waiter: %v", what, err)
		}
		if err := a.Release(t.Context(), []driver.Grant{{Request: third}})[0]; err != nil {
			t.Error(err)
		}
		info, err := a.Inspect(t.Context(), o.name)
		if err != nil || !info.Idle() {
			t.Errorf("%s: a name that is free is shown as %+v, %v", what, info, err)
		}
		if o.one == nil {
			for info, err := range a.List(t.Context(), o.name) {
				t.Errorf("%s: listed is %+v, %v", what, info, err)
			}
		}
	}
}
