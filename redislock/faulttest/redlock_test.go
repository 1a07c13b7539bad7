//go:build soak

package faulttest

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/drivertest/faults"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/quorum"
)

// injectors spoil the servers of a Redlock, each by itself, so that any number of them fails at the same
// time.
type injectors []*faults.Injector

// FaultBetween reports whether there was a fault of any server.
func (in injectors) FaultBetween(from, until driver.Instant) bool {
	return slices.ContainsFunc(in, func(i *faults.Injector) bool { return i.FaultBetween(from, until) })
}

// redlockHistories runs random histories, of so many operations together, over servers that are spoilt
// meanwhile, the more rarely the longer the TTL is.
func redlockHistories(t *testing.T, operations int, nodes []faults.Server, addresses []string, ttl time.Duration, parameters string) {
	t.Helper()
	var all injectors
	var hosts []string
	for i, node := range nodes {
		proxy := chaos.StartProxy(t, addresses[i])
		hosts = append(hosts, proxy.Addr)
		all = append(all, faults.StartInjector(t, node, proxy, max(time.Second, 5*ttl/2)))
	}
	u := parse(t, "redlock://"+strings.Join(hosts, ",")+parameters)
	drivertest.RunHistories(t, drivertest.Harness{
		Open:         func(t testing.TB) driver.Driver { return faults.OpenDriver(t, u) },
		Operations:   operations,
		FaultBetween: all.FaultBetween,
		Plain:        true,
		TTL:          ttl,
		Leaks: []goleak.Option{
			goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/internal/test/testserver.(*process).watch"),
			goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/drivertest/faults.(*Injector).run"),
		},
	})
	for _, in := range all {
		in.End(t)
	}
}

// ttlFor returns a TTL for a node: it has a tenth of it to answer, and may sync each vote to a disk that others use too.
func ttlFor(r *testserver.Redis) time.Duration {
	slowest := time.Duration(0)
	for range 20 {
		begun := time.Now()
		r.Ask("SET", "how quick", "it is")
		slowest = max(slowest, time.Since(begun))
	}
	r.Ask("DEL", "how quick")
	return min(max(400*time.Millisecond, 20*slowest), 8*time.Second)
}

// TestRedlockHistories runs random histories of five servers, each of which is paused, killed and restarted, and
// cut off, again and again. They keep on disk what they acknowledged, so all promises hold: at most one holds
// the name, and tokens grow. The clock of one is a minute ahead, and is set back to a minute behind.
func TestRedlockHistories(t *testing.T) {
	testserver.TakeTurn(t)
	var nodes []faults.Server
	var addresses []string
	var clock *testserver.Clock
	for i := range 5 {
		r := testserver.StartRedis(t, testserver.RedisOptions{AOF: true, Clock: i == 0})
		if i == 0 {
			clock = r.Clock
			clock.Set(time.Minute)
		}
		nodes, addresses = append(nodes, r), append(addresses, r.Addr)
	}
	back := time.AfterFunc(3*time.Second, func() { clock.Set(-time.Minute) })
	defer back.Stop()
	ttl := ttlFor(nodes[0].(*testserver.Redis))
	redlockHistories(t, testserver.Long(600, 12_000), nodes, addresses, ttl, "?hf.durable=yes")
}

// forgetting limits how often servers without a disk restart: at any time fewer than half of them are away, or do not
// count yet because they have forgotten their votes.
type forgetting struct {
	mu        sync.Mutex
	uncounted []driver.Instant // until when each server does not count that restarts, or has restarted
	next      driver.Instant   // the next restart
	delay     time.Duration    // for which a server does not count, with the time until clients hear of the restart
	restarts  int
}

// away is until when a server does not count that is not back yet.
const away = math.MaxInt64

// may reports whether a server may restart now. Then back must follow.
func (f *forgetting) may() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := driver.HostClock.Now()
	f.uncounted = slices.DeleteFunc(f.uncounted, func(until driver.Instant) bool { return until < now })
	if len(f.uncounted) >= 2 || now < f.next {
		return false
	}
	f.uncounted = append(f.uncounted, away)
	f.next = now.Add(f.delay / 5)
	f.restarts++
	return true
}

// back says that a server has restarted.
func (f *forgetting) back() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.uncounted[slices.Index(f.uncounted, away)] = driver.HostClock.Now().Add(f.delay)
}

// forgetful is a server that forgets everything when it restarts. Its clock is then another.
type forgetful struct {
	*testserver.Redis
	limit  *forgetting
	killed bool
}

func (f *forgetful) Kill() {
	if f.killed = f.limit.may(); f.killed {
		f.Redis.Kill()
	}
}

func (f *forgetful) Start() {
	if f.killed {
		if f.Clock != nil {
			f.Clock.Set(time.Minute * time.Duration(rand.IntN(3)-1))
		}
		f.Redis.Start()
		f.limit.back()
	}
}

// TestForgetfulRedlockHistories runs random histories of five servers that keep nothing on disk. Each is paused and cut
// off again and again, and sometimes one restarts, and has forgotten its votes, or its clock is set by a minute
// then.
func TestForgetfulRedlockHistories(t *testing.T) {
	testserver.TakeTurn(t)
	const longest = 10 * time.Second // of a TTL
	limit := &forgetting{delay: longest + longest/5}
	var nodes []faults.Server
	var addresses []string
	for i := range 5 {
		r := testserver.StartRedis(t, testserver.RedisOptions{Clock: i == 0})
		nodes, addresses = append(nodes, &forgetful{Redis: r, limit: limit}), append(addresses, r.Addr)
	}
	parameters := "?hf.maxttl=" + longest.String()
	d := faults.OpenDriver(t, parse(t, "redlock://"+strings.Join(addresses, ",")+parameters))
	must(t, errors.Join(quorum.Init(t.Context(), d), d.Close()))
	redlockHistories(t, testserver.Long(3_000, 60_000), nodes, addresses, 0, parameters)
	if limit.restarts == 0 {
		t.Error("no server has forgotten its votes")
	}
}
