package etcdlock

import (
	"bufio"
	"context"
	"errors"
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
	case <-time.After(time.Minute):
		w.Fatal("P7: nobody was granted a free name")
	}
}

func (w *queueOf) end() {
	w.stop()
	w.waiting.Wait()
	w.c.Close()
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

// listens reports whether all that it follows has begun.
func (v *waitCall) listens() bool {
	return v.fs[0] != nil && !slices.ContainsFunc(v.fs[:], func(f *follower) bool { return f != nil && !f.begun })
}
