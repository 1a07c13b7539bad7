package faulttest

import (
	"context"
	"math/rand/v2"
	neturl "net/url"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestHistories runs random histories of 20,000 operations while the member is
// paused, killed and restarted, and clients are cut off, again and again.
func TestHistories(t *testing.T) {
	testserver.Unfinished(t)
	e := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	proxy := testserver.StartProxy(t, e.Addrs())
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		storm(e.Members[0], proxy, stop)
	}()
	drivertest.RunHistories(t, drivertest.Harness{
		Open:       func(t testing.TB) driver.Driver { return persistent(t, proxy.Addr) },
		TTL:        time.Second,
		Operations: 20_000,
		Unsteady:   true,
		Leaks: []goleak.Option{
			goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/internal/testserver.(*EtcdMember).start.func1"),
			goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/etcdlock/faulttest.storm"),
		},
	})
	close(stop)
	<-stopped
}

// storm spoils a member until it is told to stop.
func storm(m *testserver.EtcdMember, proxy *testserver.Proxy, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(rand.N(2 * time.Second)):
		}
		switch rand.IntN(4) {
		case 0:
			m.Pause()
			time.Sleep(rand.N(200 * time.Millisecond))
			m.Resume()
		case 1:
			proxy.Cut()
			time.Sleep(rand.N(50 * time.Millisecond))
			proxy.Heal()
		case 2:
			proxy.Hold(testserver.ToClient, "")
			time.Sleep(rand.N(200 * time.Millisecond))
			proxy.Heal()
		case 3:
			m.Kill()
			m.Start()
		}
	}
}

// persistent opens a driver, for as long as it takes.
func persistent(t testing.TB, addr string) driver.Driver {
	t.Helper()
	u, err := neturl.Parse(url(addr))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		d, err := driver.Open(ctx, u)
		if err == nil {
			return d
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
