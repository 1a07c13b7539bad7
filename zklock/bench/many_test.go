//go:build soak

package bench

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// waiting has many clients wait for one name, and then lets each have it once. It reports,
// for 10, 100 and 1,000 of them, the requests and watches that the server has of each while all wait, the
// requests of a hand-over, and the memory that a client takes, and that its waiting takes.
func waiting(b *testing.B) {
	server := testserver.StartZooKeeper(b, testserver.ZooKeeperOptions{JVM: compiled})
	for _, way := range []struct {
		name string
		open opener
	}{{"holdfast", ours(b, server.Addrs())}, {"go-zookeeper", stock(b, server.Addrs())}} {
		for _, n := range []int{10, 100, 1000} {
			b.Run(fmt.Sprint(way.name, "-", n), func(b *testing.B) {
				for i := range b.N {
					wait(b, server.Addrs(), fmt.Sprintf("/waiting/%s/%d-%d", way.name, n, i), n, way.open)
				}
			})
		}
	}
}

// wait measures one crowd.
func wait(b *testing.B, server, path string, n int, open opener) {
	b.Helper()
	hold, closed := open(path)
	defer closed()
	before := memory()
	pairs := make([]func(func()) error, n)
	for i := range pairs {
		pair, closed := open(path)
		defer closed()
		pairs[i] = pair
		if err := pair(func() {}); err != nil { // its session is there
			b.Fatal(err)
		}
	}
	opened := memory()
	held, let := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		if err := hold(func() { close(held); <-let }); err != nil {
			b.Error(err)
		}
	})
	<-held
	for _, pair := range pairs {
		all.Go(func() {
			if err := pair(func() {}); err != nil {
				b.Error(err)
			}
		})
	}
	for end := time.Now().Add(time.Minute); tells(b, server, "zk_watch_count") < n; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatal("not all watch")
		}
	}
	waits, watches := memory(), tells(b, server, "zk_watch_count")
	const idle = 3 * time.Second
	packets := tells(b, server, "zk_packets_received")
	time.Sleep(idle)
	idling := tells(b, server, "zk_packets_received") - packets
	packets, begin := tells(b, server, "zk_packets_received"), time.Now()
	close(let)
	all.Wait()
	took := time.Since(begin)
	each := float64(n)
	b.ReportMetric(float64(tells(b, server, "zk_packets_received")-packets)/each, "requests/hand-over")
	b.ReportMetric(each/took.Seconds(), "hand-overs/s")
	b.ReportMetric(float64(idling)/idle.Seconds()/each, "requests/s-each-while-waiting")
	b.ReportMetric(float64(watches)/each, "watches-each")
	b.ReportMetric(float64(opened-before)/each, "B/client")
	b.ReportMetric(float64(waits-opened)/each, "B/waiting")
	b.ReportMetric(0, "ns/op")
}

// oneClient has 1,000 goroutines of one client wait for one name, and reports the memory of
// each, less that of a goroutine which is parked.
func oneClient(b *testing.B) {
	const n = 1000
	server := testserver.StartZooKeeper(b, testserver.ZooKeeperOptions{JVM: compiled})
	for range b.N {
		ctx, cancel := context.WithCancel(b.Context())
		holder, waiters := client(b, server.Addrs()), client(b, server.Addrs())
		lease, err := holder.Mutex("one", nil).Acquire(ctx)
		if err != nil {
			b.Fatal(err)
		}
		grow := func(wait func()) int {
			var all sync.WaitGroup
			before := memory()
			for range n {
				all.Go(wait)
			}
			time.Sleep(time.Second) // all wait
			after := memory()
			cancel()
			all.Wait()
			ctx, cancel = context.WithCancel(b.Context())
			return after - before
		}
		parked := grow(func() { <-ctx.Done() })
		waiting := grow(func() {
			if _, err := waiters.Mutex("one", nil).Acquire(ctx); err == nil {
				b.Error("granted")
			}
		})
		b.ReportMetric(float64(waiting-parked)/n, "B/waiter")
		cancel()
		if err := lease.Release(); err != nil {
			b.Fatal(err)
		}
		holder.Close()
		waiters.Close()
	}
}

// held has one client hold 10,000 names, and reports what their renewals cost the server in
// each third of the TTL, and the memory of each.
func held(b *testing.B) {
	const n, ttl, thirds = 10_000, 6 * time.Second, 6
	server := testserver.StartZooKeeper(b, testserver.ZooKeeperOptions{JVM: compiled})
	for range b.N {
		c := client(b, server.Addrs())
		before := memory()
		leases := make([]*holdfast.Lease, n)
		var takers sync.WaitGroup
		for taker := range 64 {
			takers.Go(func() {
				for i := taker; i < n; i += 64 {
					var err error
					if leases[i], err = c.Mutex(fmt.Sprint("held/", i), &holdfast.Options{TTL: ttl}).Acquire(b.Context()); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		takers.Wait()
		if b.Failed() {
			b.FailNow()
		}
		b.ReportMetric(float64(memory()-before)/n, "B/hold")
		time.Sleep(ttl) // until all are watched, and renewed together
		packets, writes := tells(b, server.Addrs(), "zk_packets_received"), zxid(b, server.Addrs())
		time.Sleep(thirds * ttl / 3)
		b.ReportMetric(float64(zxid(b, server.Addrs())-writes)/thirds, "writes/third")
		b.ReportMetric(float64(tells(b, server.Addrs(), "zk_packets_received")-packets)/thirds, "requests/third")
		for _, lease := range leases {
			if err := lease.Err(); err != nil {
				b.Fatal(err)
			}
		}
		c.Close()
	}
}

func client(b *testing.B, servers string) *holdfast.Client {
	b.Helper()
	c, err := holdfast.Open(b.Context(), "zk://"+servers)
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// memory returns how many bytes of heap and stacks are in use.
func memory() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}

// tells returns a metric of the server.
func tells(b *testing.B, server, metric string) int {
	b.Helper()
	text, err := zk.FourLetters(b.Context(), zk.Config{}, server, "mntr")
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok && key == metric {
			n, err := strconv.Atoi(value)
			if err != nil {
				b.Fatal(err)
			}
			return n
		}
	}
	b.Fatalf("the server does not tell %s", metric)
	return 0
}

// zxid returns the number of the server's last transaction.
func zxid(b *testing.B, server string) int64 {
	b.Helper()
	info, err := zk.Probe(b.Context(), zk.Config{}, server)
	if err != nil {
		b.Fatal(err)
	}
	return info.Zxid
}
