package etcdlock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

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

// listens reports whether all that it follows has begun.
func (v *waitCall) listens() bool {
	return v.fs[0] != nil && !slices.ContainsFunc(v.fs[:], func(f *follower) bool { return f != nil && !f.begun })
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
			for errors.Is(err, driver.ErrHeld) && ctx.Err() == nil {
				if g, err = c.Wait(ctx, req); errors.Is(err, driver.ErrHeld) {
					g, err = c.Enqueue(ctx, req)
				}
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
		for _, p := range c.places {
			if p.waits != nil && p.waits.listens() {
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
	case <-time.After(30 * time.Second):
		w.Fatal("P7: nobody was granted a free name")
	}
}

func (w *queueOf) end() {
	w.stop()
	w.waiting.Wait()
	w.c.Close()
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

// BenchmarkWaiters reports what one of a thousand waiters takes of the client's
// memory beyond a goroutine that waits for a channel, and what a hand-off costs.
func BenchmarkWaiters(b *testing.B) {
	const waiters = 1000
	server := testserver.StartEtcd(b, testserver.EtcdOptions{Election: 5 * time.Second})
	parked := heapAndStacks()
	release := make(chan struct{})
	for range waiters {
		go func() { <-release }()
	}
	parked = heapAndStacks() - parked
	close(release)
	before := heapAndStacks()
	w := newQueueOf(b, server.Addrs(), waiters)
	defer w.end()
	each := float64(heapAndStacks()-before-parked) / waiters
	count, turns := messages(b, server.Addrs()), 0
	for b.Loop() {
		if turns++; turns < waiters {
			w.pass()
		}
	}
	b.ReportMetric(each, "B/waiter")
	b.ReportMetric(float64(messages(b, server.Addrs())-count)/float64(min(turns, waiters)), "messages/op")
}

func heapAndStacks() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// TestFarBehind: who takes a place learns how many are before it, so that it confirms the
// place less often where they are many; there its lease lasts a second longer.
func TestFarBehind(t *testing.T) {
	for _, waiters := range []int{2, driver.FarBehind + 2} {
		server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: 5 * time.Second})
		w := newQueueOf(t, server.Addrs(), waiters)
		c := dial(t, server.Addrs(), nil)
		try := request("queue")
		if _, err := c.Try(t.Context(), try); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("P1: Try of a held name: %v", err)
		}
		for _, again := range []string{"a place", "its confirmation"} {
			_, err := c.Enqueue(t.Context(), try)
			var held *driver.HeldError
			if !errors.As(err, &held) || held.Ahead != waiters+1 {
				t.Errorf("behind %d others, %s: %+v, %v", waiters+1, again, held, err)
			}
		}
		c.mu.Lock()
		far := c.record(try.Name, try.Owner).session.Load().seconds > c.minSeconds
		c.mu.Unlock()
		if far != (waiters >= driver.FarBehind) {
			t.Errorf("behind %d others the place's lease is longer: %v", waiters+1, far)
		}
		if err := c.Release(t.Context(), []driver.Grant{{Request: try}})[0]; err != nil {
			t.Error(err)
		}
		c.Close()
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
	if err := holder.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
		t.Fatal(err)
	}
	if held := try("after a release"); held.Note != "a waiter" || held.Token <= g.Token {
		t.Errorf("after a release: a Try is told %+v", held)
	}
}
