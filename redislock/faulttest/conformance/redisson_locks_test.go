//go:build soak

package conformance

import (
	"context"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/internal/wrap"
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

// redissonOf returns what makes drivers of a kind.
func redissonOf(kind redislock.RedissonKind, as func(driver.Driver) driver.Driver) func(testing.TB, redislock.Conn) driver.Driver {
	open := with(redislock.Options{Layout: redislock.Redisson, Redisson: kind})
	return func(t testing.TB, c redislock.Conn) driver.Driver { return as(open(t, c)) }
}

// runRedisson runs the suite on a kind, but for what Redisson has not: notes, and some cases.
func runRedisson(t *testing.T, h drivertest.Harness, except ...string) {
	t.Helper()
	h.Except = append([]string{"inspect/shows the holder"}, except...)
	drivertest.Run(t, h)
}

func redissonServer(t *testing.T) *testserver.Redis {
	return testserver.StartRedis(t, testserver.RedisOptions{AOF: true})
}

func TestConformanceRedissonMutex(t *testing.T) {
	runRedisson(t, against(redissonServer(t), redissonOf(redislock.RedissonLock, newMutexes)))
}

// TestConformanceRedissonReadWrite: a semaphore stays as it was made, as in Redisson, when nobody has permits
// any more.
func TestConformanceRedissonReadWrite(t *testing.T) {
	runRedisson(t, against(redissonServer(t), redissonOf(redislock.RedissonLock, newReadWrite)), semaphoreStays...)
}

var semaphoreStays = []string{
	"mismatch/a mutex where a semaphore is held", "mismatch/a reader where a semaphore is held",
	"mismatch/more slots", "mismatch/fewer slots",
}

func TestConformanceRedissonCluster(t *testing.T) {
	c := testserver.StartCluster(t, testserver.ClusterOptions{AOF: true})
	h := againstCluster(c, redissonOf(redislock.RedissonLock, newReadWrite))
	h.Refuses = func(name string) bool { return redisson.CheckCluster(name) != nil }
	runRedisson(t, h, semaphoreStays...)
}

// asIs leaves a client as it is: those of the other kinds have mutexes only.
func asIs(d driver.Driver) driver.Driver { return d }

// mutexesOnly are cases with read-write locks.
var mutexesOnly = []string{
	"read-write/a mutex and a write lock", "read-write/a write lock and a mutex", "read-write/a write lock waits behind a mutex",
}

func TestConformanceRedissonFair(t *testing.T) {
	h := against(redissonServer(t), redissonOf(redislock.RedissonFair, asIs))
	runRedisson(t, h, append(mutexesOnly, "inspect/shows waiters in order")...) // their notes, too
}

func TestConformanceRedissonFenced(t *testing.T) {
	runRedisson(t, against(redissonServer(t), redissonOf(redislock.RedissonFenced, asIs)), mutexesOnly...)
}
