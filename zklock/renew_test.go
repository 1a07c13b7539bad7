package zklock

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// handClock is a clock that the test sets.
type handClock struct{ now atomic.Int64 }

func (c *handClock) Now() driver.Instant { return driver.Instant(c.now.Load()) }

func (c *handClock) pass(d time.Duration) { c.now.Add(int64(d)) }

// TestOneWriteForAll: holds that were taken at any time within a third of their TTL are soon renewed together,
// by one write of their session in each third, if each is renewed when a third of its TTL is over.
func TestOneWriteForAll(t *testing.T) {
	x := fixture{start(t)}
	clock := &handClock{}
	clock.pass(time.Hour)
	c := x.openWith(t, Config{Clock: clock})
	const ttl, holds, thirds = time.Minute, 16, 12
	var grants []driver.Grant
	for i := range holds {
		r := request(fmt.Sprint("one/", i))
		r.TTL = ttl
		grants = append(grants, take(t, c, r))
		clock.pass(ttl / 3 / holds)
	}
	due := func(g driver.Grant) driver.Instant { return g.Since.Add(ttl / 3) }
	renewals := func(until driver.Instant) {
		for {
			first := slices.MinFunc(grants, func(a, b driver.Grant) int { return int(due(a) - due(b)) })
			if due(first) > until {
				return
			}
			clock.pass(max(0, due(first).Sub(clock.Now())))
			var together []int
			for i, g := range grants {
				if due(g) <= clock.Now().Add(ttl/24) { // as package holdfast does
					together = append(together, i)
				}
			}
			batch := make([]driver.Grant, len(together))
			for i, at := range together {
				batch[i] = grants[at]
			}
			for i, r := range c.Renew(t.Context(), batch) {
				g := &grants[together[i]]
				if r.Err != nil || r.Since <= g.Since {
					t.Fatalf("P2: renewing %q of %v: %+v", g.Name, g.Since, r)
				}
				g.Since = r.Since
			}
		}
	}
	zxid := func() int64 {
		info, err := zk.Probe(t.Context(), zk.Config{}, x.Members[0].Addr)
		must(t, err)
		return info.Zxid
	}
	settled := clock.Now().Add(3 * ttl / 3)
	renewals(settled)
	before := zxid()
	renewals(settled.Add(thirds * ttl / 3))
	if n := zxid() - before; n > thirds+1 {
		t.Errorf("P9: %d holds of one session cost %d writes in %d thirds of their TTL", holds, n, thirds)
	} else {
		t.Logf("%d writes in %d thirds of the TTL", n, thirds)
	}
}
