package zklock

import (
	"fmt"
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

// TestOneWriteForAll: holds that were taken at different times are renewed together, by one write of their session.
func TestOneWriteForAll(t *testing.T) {
	x := fixture{start(t)}
	clock := &handClock{}
	clock.pass(time.Hour)
	c := x.openWith(t, Config{Clock: clock})
	var grants []driver.Grant
	for i := range 16 {
		grants = append(grants, take(t, c, request(fmt.Sprint("one/", i))))
		clock.pass(time.Second / 4)
	}
	zxid := func() int64 {
		info, err := zk.Probe(t.Context(), zk.Config{}, x.Members[0].Addr)
		must(t, err)
		return info.Zxid
	}
	for range 3 {
		clock.pass(grants[0].TTL / 3)
		before := zxid()
		for _, r := range c.Renew(t.Context(), grants) {
			if r.Err != nil || r.Since != clock.Now() {
				t.Errorf("P2: renewed at %v as %+v", clock.Now(), r)
			}
		}
		if n := zxid() - before; n != 1 {
			t.Errorf("P9: %d holds of one session are renewed by %d writes", len(grants), n)
		}
	}
}
