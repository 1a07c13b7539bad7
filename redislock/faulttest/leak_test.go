//go:build soak

package faulttest

import (
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// census is what locks could leave behind, in the server and in the process.
type census struct {
	keys, channels, connections, goroutines, heap int64
}

// count returns the census.
func count(t testing.TB, do func(args ...string) rueidis.RedisResult) (c census) {
	t.Helper()
	var err error
	if c.keys, err = do("DBSIZE").AsInt64(); err != nil {
		t.Fatal(err)
	}
	channels, err := do("PUBSUB", "CHANNELS").AsStrSlice()
	if err != nil {
		t.Fatal(err)
	}
	c.channels = int64(len(channels))
	clients, err := do("CLIENT", "LIST").ToString()
	if err != nil {
		t.Fatal(err)
	}
	c.connections = int64(strings.Count(clients, "\n"))
	c.goroutines = int64(runtime.NumGoroutine())
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	c.heap = int64(m.HeapAlloc)
	return c
}

// TestNothingIsLeft takes and releases locks of very many names. The client
// keeps nothing of them, the server one small record of each, which is gone when
// it has been idle for a while (P9).
func TestNothingIsLeft(t *testing.T) {
	const workers = 64
	names := testserver.Long[int64](20_000, 100_000)
	const idle = 30 * time.Minute // a record outlives its last use by ten minutes or more, and by no more than this
	r := testserver.StartRedis(t, testserver.RedisOptions{Clock: true})
	do := admin(t, r.Addr)
	before := count(t, do)
	c, err := holdfast.Open(t.Context(), url(r.Addr))
	if err != nil {
		t.Fatal(err)
	}
	until(t, "its four connections are made", func() bool {
		if err := acquire(t, c, "a first one", nil).Release(); err != nil {
			t.Fatal(err)
		}
		return count(t, do).connections == before.connections+4
	})
	opened := count(t, do)

	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := next.Add(1); i <= names && !t.Failed(); i = next.Add(1) {
				lease, err := c.Mutex("name/"+strconv.FormatInt(i, 10), nil).Acquire(t.Context())
				if err == nil {
					err = lease.Release()
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	until(t, "the goroutines end", func() bool { return int64(runtime.NumGoroutine()) <= opened.goroutines })
	used := count(t, do)
	t.Logf("before %+v, opened %+v, used %+v", before, opened, used)
	if used.channels > opened.channels || used.connections > opened.connections {
		t.Errorf("P9: %d names left channels or connections: %+v, before %+v", names, used, opened)
	}
	if more := used.heap - opened.heap; more > 1<<20 {
		t.Errorf("P9: %d names left %d B in the client", names, more)
	}
	if most := opened.keys + names; used.keys > most {
		t.Errorf("P9: %d names left %d keys", names, used.keys-opened.keys)
	}
	expiring(t, do, idle)

	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	until(t, "connections and channels are gone", func() bool {
		now := count(t, do)
		return now.channels == before.channels && now.connections == before.connections && now.goroutines <= before.goroutines
	})
	r.Clock.Set(idle + time.Second)
	until(t, "the records expire", func() bool { return count(t, do).keys <= 1 }) // which store it is
	until(t, "P9: the client's memory is free", func() bool { return count(t, do).heap <= opened.heap })
}

// expiring asserts of a sample of the keys that they are small, and end by
// themselves when they have been idle.
func expiring(t *testing.T, do func(args ...string) rueidis.RedisResult, idle time.Duration) {
	t.Helper()
	scan, err := do("SCAN", "0", "MATCH", "*name/*", "COUNT", "1000").AsScanEntry()
	if err != nil || len(scan.Elements) == 0 {
		t.Fatalf("no keys: %v", err)
	}
	total := int64(0)
	for _, key := range scan.Elements {
		left, err := do("PTTL", key).AsInt64()
		if err != nil || left <= 0 || left > idle.Milliseconds() {
			t.Fatalf("P9: key %q expires in %d ms (%v)", key, left, err)
		}
		size, err := do("MEMORY", "USAGE", key).AsInt64()
		if err != nil {
			t.Fatal(err)
		}
		total += size
	}
	each := total / int64(len(scan.Elements))
	t.Logf("%d B for each name in the server, for %v", each, idle)
	if each > 1024 { // a sorted set that once had a member above 64 bytes, which a hold is
		t.Errorf("P9: an idle name takes %d B in the server", each)
	}
}
