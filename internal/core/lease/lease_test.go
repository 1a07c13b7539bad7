package lease_test

import (
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/core/lease"
)

const (
	second = driver.Instant(time.Second)
	ttl    = 30 * time.Second
	every  = 10 * time.Second
)

func TestMargin(t *testing.T) {
	for _, c := range []struct{ set, valid, want time.Duration }{
		{0, 30 * time.Second, 600 * time.Millisecond},
		{0, 250 * time.Millisecond, 5 * time.Millisecond},
		{0, time.Millisecond, 5 * time.Millisecond},
		{time.Millisecond, 30 * time.Second, time.Millisecond},
		{time.Minute, 30 * time.Second, time.Minute},
	} {
		if got := lease.Margin(c.set, c.valid); got != c.want {
			t.Errorf("Margin(%v, %v) = %v, want %v", c.set, c.valid, got, c.want)
		}
	}
}

// TestStart: the deadline is counted from the sending, less the margin. A claim is renewed at a
// third of what is left of it, even in a lease that is never renewed otherwise.
func TestStart(t *testing.T) {
	for _, c := range []struct {
		name       string
		now, since driver.Instant
		valid      time.Duration
		claim      bool
		every      time.Duration
		until      driver.Instant
		renewAt    driver.Instant // 0: never
	}{
		{"at once", 0, 0, ttl, false, every, 29 * second, 10 * second},
		{"the answer took a while", 4 * second, 0, ttl, false, every, 29 * second, 10 * second},
		{"so long that a renewal is due", 12 * second, 0, ttl, false, every, 29 * second, 10 * second},
		{"never renewed", 4 * second, 0, ttl, false, -1, 29 * second, 0},
		{"more than was asked for", 0, 0, ttl + every, false, every, 39 * second, 10 * second},
		{"a claim", 1 * second, 0, 8 * time.Second, true, every, 7 * second, 3 * second},
		{"a claim, then never", 1 * second, 0, 8 * time.Second, true, -1, 7 * second, 3 * second},
		{"a claim of the whole TTL", 2 * second, 0, ttl, true, every, 29 * second, 10 * second},
		{"a claim of the whole TTL, never renewed", 2 * second, 0, ttl, true, -1, 29 * second, 0},
		{"less than was asked for", 1 * second, 0, 15 * time.Second, false, every, 14 * second, 5 * second},
		{"a little less, never renewed", 0, 0, ttl - time.Second, false, -1, 28 * second, 0}, // as votes of a quorum
	} {
		m := lease.Start(c.now, c.since, c.valid, c.claim,
			&lease.Pace{TTL: ttl, Every: c.every, Margin: time.Second})
		at, ok := m.RenewAt()
		if m.Until() != c.until || at != c.renewAt || ok != (c.renewAt != 0) || m.State() != lease.Held {
			t.Errorf("%s: trusted until %v, renewed at %v %v, state %v",
				c.name, m.Until(), at, ok, m.State())
		}
	}
}

// TestRenewedAgain: what counts for less than the TTL is renewed so much more often, but no more often than a
// third of the time allows, unless the holder wants it.
func TestRenewedAgain(t *testing.T) {
	for _, c := range []struct{ ttl, every, valid, want time.Duration }{
		{30 * time.Second, 10 * time.Second, 30 * time.Second, 10 * time.Second},
		{30 * time.Second, 10 * time.Second, 40 * time.Second, 10 * time.Second},
		{60 * time.Second, 20 * time.Second, 31 * time.Second, 10333333333},
		{365 * 24 * time.Hour, 365 * 8 * time.Hour, 31 * time.Second, 10333333333},
		{60 * time.Second, 50 * time.Second, 30 * time.Second, 25 * time.Second},
		{60 * time.Second, 5 * time.Second, 31 * time.Second, 5 * time.Second},
		{60 * time.Second, 15 * time.Second, 31 * time.Second, 10 * time.Second},
		{60 * time.Second, -1, 31 * time.Second, 0},
	} {
		m := lease.Start(0, 0, c.ttl, false, &lease.Pace{TTL: c.ttl, Every: c.every, Margin: time.Second})
		if c.want != 0 && !m.Send(second) || !m.Renewed(2*second, second, c.valid) {
			t.Fatal("not renewed")
		}
		if want := second.Add(c.valid - time.Second); m.Until() != want {
			t.Errorf("P1: renewed for %v, and trusted until %v, not %v", c.valid, m.Until(), want)
		}
		at, ok := m.RenewAt()
		if want := second.Add(c.want); ok != (c.want != 0) || ok && (at < want-1000 || at > want+1000) {
			t.Errorf("of a TTL of %v each %v, and trusted for %v: renewed at %v, not %v", c.ttl, c.every, c.valid, at, want)
		}
	}
}

// TestHandedOver: a hold that was handed over is trusted no longer, and renewed no later, than by the
// holder before.
func TestHandedOver(t *testing.T) {
	for _, c := range []struct{ until, renew, wantUntil, wantRenew driver.Instant }{
		{20 * second, 5 * second, 20 * second, 5 * second},
		{40 * second, 15 * second, 29 * second, 10 * second},
	} {
		m := lease.Start(0, 0, ttl, false, &lease.Pace{TTL: ttl, Every: every, Margin: time.Second})
		m.HandedOver(c.until, c.renew)
		if at, _ := m.RenewAt(); m.Until() != c.wantUntil || at != c.wantRenew {
			t.Errorf("HandedOver(%v, %v): trusted until %v, renewed at %v", c.until, c.renew, m.Until(), at)
		}
	}
}
