package etcdlock

import (
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// quick is an election time with which etcd's shortest lease is 1 s.
const quick = 500 * time.Millisecond

// leaks are the goroutines of testserver, which end after the run.
var leaks = []goleak.Option{
	goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/internal/testserver.(*EtcdMember).start.func1"),
}

func TestConformance(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	drivertest.Run(t, drivertest.Harness{
		Open: func(t testing.TB) driver.Driver { return dial(t, server.Addrs(), nil) },
		Restart: func(testing.TB) {
			server.Members[0].Kill()
			server.Members[0].Start()
		},
		TTL:      time.Second,
		Parallel: 8,
		Leaks:    leaks,
	})
}

// TestConformanceOfStock is the same in the layout of etcd's own locks. There the
// value of an exclusive hold is nothing but its note, so only the client that put a
// key knows its owner: others see the key's end instead, and cannot withdraw a
// request of which they know no more than the owner.
func TestConformanceOfStock(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	drivertest.Run(t, drivertest.Harness{
		Open:     func(t testing.TB) driver.Driver { return dial(t, server.Addrs(), &Options{Layout: Stock}) },
		TTL:      time.Second,
		Parallel: 8,
		Except: []string{
			"inspect/shows the holder", "inspect/shows waiters in order", "names/awkward names are shown as they are",
			"annotate/changes the note and nothing else", "annotate/of a hold that is gone", "annotate/is kept over a renewal",
			"faults/a lost reply is withdrawn",
		},
		Leaks: leaks,
	})
}

// TestConformanceOfThree is the same on three members, of which one after the
// other is killed where the suite restarts the store.
func TestConformanceOfThree(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Members: 3, Election: quick})
	next := 0
	drivertest.Run(t, drivertest.Harness{
		Open: func(t testing.TB) driver.Driver { return dial(t, server.Addrs(), nil) },
		Restart: func(testing.TB) {
			server.Members[next%3].Kill()
			server.Members[next%3].Start()
			next++
		},
		TTL:      time.Second,
		Parallel: 8,
		Leaks:    leaks,
	})
}

// dialClient returns a client of etcd.
func dialClient(t testing.TB, addrs string) *clientv3.Client {
	t.Helper()
	list, err := endpoints(addrs, false)
	if err != nil {
		t.Fatal(err)
	}
	etcd, err := clientv3.New(clientv3.Config{Endpoints: list, DialTimeout: dialTimeout, Logger: zap.NewNop()})
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	return etcd
}

// dial returns a driver whose poll is short, so that dead waiters are waited for
// quickly.
func dial(t testing.TB, addrs string, o *Options) *client {
	t.Helper()
	if o == nil {
		o = &Options{}
	}
	o.Poll = 750 * time.Millisecond
	c, err := connect(t.Context(), dialClient(t, addrs), true, o)
	if err != nil {
		t.Fatalf("etcdlock.New: %v", err)
	}
	return c
}
