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

// TestManyWaiters: more wait than are looked at, some leave, and all others are
// served in their order.
func TestManyWaiters(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	c := dial(t, server.Addrs(), nil)
	held := take(t, c, request("many"))
	const n = 4 * table.Nearby
	type served struct {
		i   int
		g   driver.Grant
		err error
	}
	order := make(chan served, n)
	reqs := make([]driver.Request, n)
	for i := range reqs {
		reqs[i] = request("many")
		line(t, c, reqs[i])
		go func() {
			g, err := await(t.Context(), c, reqs[i])
			order <- served{i, g, err}
		}()
	}
	gone := map[int]bool{0: true, 5: true, n - 2: true}
	for i := range gone {
		release(t, c, driver.Grant{Request: reqs[i]})
	}
	for i := range n {
		if gone[i] {
			continue // it is refused: an owner that was withdrawn comes to nothing
		}
		release(t, c, held)
		s := <-order
		for gone[s.i] {
			s = <-order
		}
		if s.err != nil || s.i != i {
			t.Fatalf("P8: %d was served, not %d (%v)", s.i, i, s.err)
		}
		held = s.g
	}
}

// messages asks a member how many requests it has got, and messages by streams.
func messages(t testing.TB, addr string) (n int) {
	t.Helper()
	resp, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if count, ok := strings.CutPrefix(lines.Text(), "grpc_server_msg_received_total{"); ok {
			f, err := strconv.ParseFloat(count[strings.LastIndexByte(count, ' ')+1:], 64)
			if err != nil {
				t.Fatal(err)
			}
			n += int(f)
		}
	}
	if n == 0 {
		t.Fatal("the member has no count of messages")
	}
	return n
}

// queueOf is many waiters for one name that is held.
type queueOf struct {
	testing.TB
	c       *client
	hold    driver.Grant
	granted chan driver.Grant
	stop    context.CancelFunc
	waiting sync.WaitGroup
}

// newQueueOf takes the name and puts so many in the queue behind it. Polls are rare,
// so that what is asked is asked for a hand-off.
func newQueueOf(t testing.TB, addrs string, waiters int) *queueOf {
	t.Helper()
	c, err := connect(t.Context(), dialClient(t, addrs), true, &Options{Poll: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	w := &queueOf{TB: t, c: c, granted: make(chan driver.Grant, waiters), stop: stop}
	if w.hold, err = c.Try(ctx, request("queue")); err != nil {
		t.Fatal(err)
	}
	lined, asks := make(chan struct{}, waiters), make(chan struct{}, 32) // no more at a time
	for range waiters {
		w.waiting.Go(func() {
			req := request("queue")
			asks <- struct{}{}
			g, err := c.Enqueue(ctx, req)
			<-asks
			lined <- struct{}{}
			if errors.Is(err, driver.ErrHeld) {
				g, err = await(ctx, c, req)
			}
			if err == nil {
				w.granted <- g
			} else if ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	for range waiters {
		<-lined
	}
	for ready := false; !ready && !t.Failed(); { // all of them listen
		c.mu.Lock()
		n := 0
		for r := range c.records.all() {
			if p := r.place; p != nil && p.waits != nil && p.waits.listens() {
				n++
			}
		}
		ready = n == waiters
		c.mu.Unlock()
		time.Sleep(time.Millisecond) // then look again
	}
	return w
}

// pass releases the name and waits for whoever has it then.
func (w *queueOf) pass() {
	w.Helper()
	if err := w.c.Release(w.Context(), []driver.Grant{w.hold})[0]; err != nil {
		w.Fatal(err)
	}
	select {
	case w.hold = <-w.granted:
	case <-time.After(time.Minute):
		w.Fatal("P7: nobody was granted a free name")
	}
}

func (w *queueOf) end() {
	w.stop()
	w.waiting.Wait()
	w.c.Close()
}

// listens reports whether all that it follows has begun.
func (v *waitCall) listens() bool {
	return v.fs[0] != nil && !slices.ContainsFunc(v.fs[:], func(f *follower) bool { return f != nil && !f.begun })
}

// TestHandOverCost: a hand-off takes a few messages, however many wait.
func TestHandOverCost(t *testing.T) {
	const atMost = 8 // of each: delete, look, watch and its end; and the keepalives of the waiters
	for _, waiters := range []int{16, 256} {
		t.Run(fmt.Sprint(waiters), func(t *testing.T) {
			server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: 5 * time.Second})
			w := newQueueOf(t, server.Addrs(), waiters)
			defer w.end()
			const turns = 10
			before := messages(t, server.Addrs())
			for range turns {
				w.pass()
			}
			if n := messages(t, server.Addrs()) - before; n > turns*atMost {
				t.Errorf("P8: %d hand-offs among %d took %d messages, at most %d are in order", turns, waiters, n, turns*atMost)
			} else {
				t.Logf("%d hand-offs took %d messages", turns, n)
			}
		})
	}
}

// TestFarBehind: who takes a place learns how many are before it, so that it confirms the
// place less often where they are many.
func TestFarBehind(t *testing.T) {
	for _, waiters := range []int{2, driver.FarBehind + 2} {
		server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: 5 * time.Second})
		w := newQueueOf(t, server.Addrs(), waiters)
		c, req := dial(t, server.Addrs(), nil), request("queue")
		for _, again := range []string{"a place", "its confirmation"} {
			_, err := c.Enqueue(t.Context(), req)
			var held *driver.HeldError
			if !errors.As(err, &held) || held.Ahead != waiters+1 {
				t.Errorf("behind %d others, %s: %+v, %v", waiters+1, again, held, err)
			}
		}
		w.end()
	}
}

// TestHolderOfACrowd: who is refused at once is told who holds the name, however many
// wait: both by a client that has asked for nothing yet and by one that has.
func TestHolderOfACrowd(t *testing.T) {
	const crowd = 40
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	holder, waiters, other := dial(t, server.Addrs(), nil), dial(t, server.Addrs(), nil), dial(t, server.Addrs(), nil)
	for _, c := range []*client{holder, waiters, other} {
		t.Cleanup(func() { c.Close() })
	}
	req := request("crowd")
	req.Note = "the holder"
	g := take(t, holder, req)
	for range crowd {
		r := request("crowd")
		r.Note = "a waiter"
		line(t, waiters, r)
	}
	try := func(when string) *driver.HeldError {
		t.Helper()
		_, err := other.Try(t.Context(), request("crowd"))
		var held *driver.HeldError
		if !errors.As(err, &held) {
			t.Fatalf("P1: Try of a held name, %s: %v", when, err)
		}
		return held
	}
	check := func(when string) {
		t.Helper()
		if held := try(when); held.Note != "the holder" || held.Token != g.Token {
			t.Errorf("%s: a Try is told %+v; token %d holds the name", when, held, g.Token)
		}
	}
	check("at first")
	take(t, other, request("another"))
	check("later")
	release(t, holder, g)
	if held := try("after a release"); held.Note != "a waiter" || held.Token <= g.Token {
		t.Errorf("after a release: a Try is told %+v", held)
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
	if err := <-granted; err != nil {
		t.Fatal(err)
	}
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
