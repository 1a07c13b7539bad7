//go:build soak

package conformance

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/internal/vote"
	"github.com/holdfastlock/holdfast/internal/wrap"
	"github.com/holdfastlock/holdfast/quorum"
	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/internal/redisson"
)

// readWriteOnly makes each exclusive request one of a read-write lock, which a mutex is not in Redisson.
type readWriteOnly struct{ wrap.Forward }

func half(req driver.Request) driver.Request {
	req.RW = req.Mode != driver.Slot
	return req
}

func halves(grants []driver.Grant) []driver.Grant {
	all := make([]driver.Grant, len(grants))
	for i, g := range grants {
		g.Request = half(g.Request)
		all[i] = g
	}
	return all
}

func (d readWriteOnly) Try(ctx context.Context, req driver.Request) (driver.Grant, error) {
	return d.Forward.Try(ctx, half(req))
}

func (d readWriteOnly) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	return d.Forward.Renew(ctx, halves(grants))
}

func (d readWriteOnly) Release(ctx context.Context, grants []driver.Grant) []error {
	return d.Forward.Release(ctx, halves(grants))
}

func (d readWriteOnly) Vote(ctx context.Context, req driver.Request, life vote.Life) (driver.Grant, bool, error) {
	return d.Forward.Vote(ctx, half(req), life)
}

func (d readWriteOnly) Downgrade(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	g.Request = half(g.Request)
	return d.Forward.Downgrade(ctx, g)
}

func newReadWrite(d driver.Driver) driver.Driver { return readWriteOnly{wrap.Forward{Driver: d}} }

// mutexOnly hides the read-write lock and the semaphore, which are no mutexes in Redisson.
type mutexOnly struct{ wrap.Forward }

func newMutexes(d driver.Driver) driver.Driver { return mutexOnly{wrap.Forward{Driver: d}} }

func (d mutexOnly) Caps() driver.Caps {
	caps := d.Forward.Caps()
	caps.Shared, caps.Slots = false, false
	return caps
}

func (d mutexOnly) Try(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if req.Mode != driver.Exclusive {
		return driver.Grant{}, driver.ErrUnsupported
	}
	req.RW = false
	return d.Forward.Try(ctx, req)
}

func (d mutexOnly) Vote(ctx context.Context, req driver.Request, life vote.Life) (driver.Grant, bool, error) {
	req.RW = false
	return d.Forward.Vote(ctx, req, life)
}

func dialRedisson(t testing.TB, conn redislock.Conn, kind redislock.RedissonKind) driver.Driver {
	t.Helper()
	d, err := redislock.New(t.Context(), conn, &redislock.Options{Layout: redislock.Redisson, Redisson: kind})
	if err != nil {
		t.Fatalf("redislock.New: %v", err)
	}
	return d
}

func redissonHarness(t *testing.T, kind redislock.RedissonKind, as func(driver.Driver) driver.Driver) drivertest.Harness {
	server := testserver.StartRedis(t, testserver.RedisOptions{AOF: true})
	return drivertest.Harness{
		Open: func(t testing.TB) driver.Driver { return as(dialRedisson(t, fromURL(t, server.Addr), kind)) },
		Transport: func(t testing.TB) (driver.Driver, drivertest.Transport) {
			proxy := chaos.StartProxy(t, server.Addr)
			return as(dialRedisson(t, fromURL(t, proxy.Addr), kind)), proxy
		},
		Restart:  func(testing.TB) { server.Kill(); server.Start() },
		Parallel: 8,
		Leaks:    serverLeaks,
		// Redisson has no notes.
		Except: []string{"inspect/shows the holder"},
	}
}

func TestConformanceRedissonMutex(t *testing.T) {
	drivertest.Run(t, redissonHarness(t, redislock.RedissonLock, newMutexes))
}

// TestConformanceRedissonReadWrite: a semaphore stays as it was made, as in Redisson, when nobody has permits
// any more.
func TestConformanceRedissonReadWrite(t *testing.T) {
	h := redissonHarness(t, redislock.RedissonLock, newReadWrite)
	h.Except = append(h.Except, semaphoreStays...)
	drivertest.Run(t, h)
}

var semaphoreStays = []string{
	"mismatch/a mutex where a semaphore is held", "mismatch/a reader where a semaphore is held",
	"mismatch/more slots", "mismatch/fewer slots",
}

func TestConformanceRedissonCluster(t *testing.T) {
	c := testserver.StartCluster(t, testserver.ClusterOptions{AOF: true})
	h := redissonHarness(t, redislock.RedissonLock, newReadWrite)
	h.Open = func(t testing.TB) driver.Driver {
		return newReadWrite(dialRedisson(t, inCluster(t, c, nil), redislock.RedissonLock))
	}
	h.Transport = func(t testing.TB) (driver.Driver, drivertest.Transport) {
		ways := startProxies(t, c.Servers...)
		return newReadWrite(dialRedisson(t, inCluster(t, c, ways), redislock.RedissonLock)), ways
	}
	h.Restart = func(testing.TB) { c.Restart() }
	h.Refuses = func(name string) bool { return redisson.CheckCluster(name) != nil }
	h.Except = append(h.Except, semaphoreStays...)
	drivertest.Run(t, h)
}

// asIs leaves a client as it is: those of the other kinds have mutexes only.
func asIs(d driver.Driver) driver.Driver { return d }

// mutexesOnly are cases with read-write locks.
var mutexesOnly = []string{
	"read-write/a mutex and a write lock", "read-write/a write lock and a mutex", "read-write/a write lock waits behind a mutex",
}

func TestConformanceRedissonFair(t *testing.T) {
	h := redissonHarness(t, redislock.RedissonFair, asIs)
	h.Except = append(append(h.Except, mutexesOnly...), "inspect/shows waiters in order") // their notes, too
	drivertest.Run(t, h)
}

func TestConformanceRedissonFenced(t *testing.T) {
	h := redissonHarness(t, redislock.RedissonFenced, asIs)
	h.Except = append(h.Except, mutexesOnly...)
	drivertest.Run(t, h)
}

func TestConformanceRedissonSpin(t *testing.T) {
	h := redissonHarness(t, redislock.RedissonSpin, asIs)
	h.Except = append(h.Except, mutexesOnly...)
	drivertest.Run(t, h)
}

// TestConformanceRedissonRedlock is RedissonRedLock: the lock has a majority of independent servers.
func TestConformanceRedissonRedlock(t *testing.T) {
	nodes := startNodes(t, 3, testserver.RedisOptions{})
	o := quorum.Options{NodeTimeout: 2 * time.Second, MaxTTL: time.Hour}
	open := func(t testing.TB, addresses []string) driver.Driver {
		var all []quorum.Node
		for _, address := range addresses {
			all = append(all, quorum.Node{Name: address, Open: func(ctx context.Context) (driver.Driver, error) {
				d, err := driver.Open(ctx, &url.URL{Scheme: "redis", Host: address, RawQuery: "hf.layout=redisson"})
				if err != nil {
					return nil, err
				}
				return newMutexes(d), nil
			}})
		}
		d, err := quorum.Open(t.Context(), "redlock:redisson", all, &o)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	drivertest.Run(t, drivertest.Harness{
		TTL:        time.Second,
		Operations: 400,
		Open:       func(t testing.TB) driver.Driver { return open(t, nodes.addresses()) },
		Transport: func(t testing.TB) (driver.Driver, drivertest.Transport) {
			ways := startProxies(t, nodes...)
			return open(t, nodes.by(ways)), ways
		},
		Parallel: 4,
		Except:   append([]string{"inspect/shows the holder"}, mutexesOnly...), // as above
	})
}
