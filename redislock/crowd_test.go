package redislock

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// enqueue takes a place, or confirms it, and returns what the store says.
func (p *plainTest) enqueue(c *client, owner string) *driver.HeldError {
	p.Helper()
	held := (*driver.HeldError)(nil)
	req := driver.Request{Name: "n", Owner: owner, TTL: 10 * time.Second}
	if g, err := c.Enqueue(p.Context(), req); !errors.As(err, &held) {
		p.Fatalf("Enqueue of %s gave %+v, %v", owner, g, err)
	}
	return held
}

// TestKeysEnd: all keys of a name end by themselves; when nobody uses it there is one only (P9).
func TestKeysEnd(t *testing.T) {
	p := newPlainTest(t)
	keys := func() (there []string) {
		t.Helper()
		for _, key := range p.layout.keys("n") {
			ms, _ := p.clock.conn.do(t, "PTTL", key).(int64)
			if ms == -2 {
				continue
			}
			there = append(there, key)
			if ms <= 0 || ms > 25*60*1000 {
				t.Errorf("%s ends in %d ms", key, ms)
			}
		}
		return there
	}
	withdraw := func(owner string) { p.release(driver.Grant{Request: driver.Request{Name: "n", Owner: owner}}, nil) }
	for round := range 40 {
		g := p.try("holder", nil)
		for i := range 3 {
			p.enqueue(p.client, fmt.Sprint("waiter ", round, " ", i))
		}
		withdraw("late " + strconv.Itoa(round))
		if got := keys(); len(got) != len(suffixes) {
			t.Errorf("there are %q", got)
		}
		for i := range 3 {
			withdraw(fmt.Sprint("waiter ", round, " ", i))
		}
		p.release(g, nil)
		p.clock.advance(t, withdrawnFor)
		// The tombstones of this round end now; they take no more room than those of two rounds.
		if n := p.clock.conn.do(t, "ZCARD", p.layout.keys("n")[4]).(int64); n > 8 {
			t.Fatalf("after round %d there are %d tombstones", round, n)
		}
	}
	p.clock.conn.do(t, "DEL", p.layout.keys("n")[4]) // as when they have ended by the server's own clock
	p.release(p.take(p.request("last")), nil)
	if got := keys(); !slices.Equal(got, []string{p.layout.record("n")}) {
		t.Errorf("of an idle name there are %q", got)
	}
}
