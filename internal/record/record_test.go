package record

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

const start = driver.Instant(1000 * time.Hour)

func testRules() *Rules {
	last := driver.Token(0)
	return &Rules{
		Poll:    time.Second,
		Token:   func() driver.Token { last++; return last },
		Granted: func(*Place) {},
	}
}

func request(owner string, minHold, delay time.Duration) driver.Request {
	return driver.Request{Name: "x", Owner: owner, TTL: 10 * time.Second, LockDelay: delay, MinHold: minHold}
}

// opensAt asserts that the name is closed until an instant and free from then on.
func opensAt(t *testing.T, r *Record, rules *Rules, at driver.Instant) {
	t.Helper()
	for _, now := range []driver.Instant{at - 1, at} {
		c := *r
		c.Holds = append([]Hold{}, r.Holds...)
		c.Settle(now, rules)
		if _, err := c.Ask(request("another", 0, 0), "", false, now, now, rules); (err == nil) != (now == at) {
			t.Errorf("P5: at %v of the %v for which the name should be closed, asking for it gives %v", now.Sub(start), at.Sub(start), err)
		}
	}
}

func TestVanished(t *testing.T) {
	const ttl = 10 * time.Second
	for _, c := range []struct {
		name           string
		minHold, delay time.Duration
		died           time.Duration // when the client died; 0: it only stopped
		opens          time.Duration
	}{
		{name: "neither", opens: ttl},
		{name: "a lock-delay", delay: time.Second, opens: ttl + time.Second},
		{name: "a minimum hold", minHold: time.Minute, opens: time.Minute},
		{name: "a minimum hold that is over", minHold: time.Second, opens: ttl},
		{name: "both, the minimum longer", minHold: time.Minute, delay: time.Second, opens: time.Minute},
		{name: "both, the delay longer", minHold: 12 * time.Second, delay: 5 * time.Second, opens: ttl + 5*time.Second},
		{name: "a client that died, and a minimum hold", died: time.Second, minHold: 5 * time.Second, opens: 5 * time.Second},
		{name: "a client that died, and a lock-delay", died: time.Second, delay: 5 * time.Second, opens: 6 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r Record
			rules := testRules()
			if _, err := r.Ask(request("a", c.minHold, c.delay), "client", false, start, start, rules); err != nil {
				t.Fatal(err)
			}
			if c.died > 0 {
				rules.Alive = func(string) bool { return false }
				r.Settle(start.Add(c.died), rules)
			}
			opensAt(t, &r, rules, start.Add(c.opens))
		})
	}
}

// A winner that is never heard of has begun nothing, and its minimum hold keeps nobody
// out; from its first renewal on it does.
func TestClaimHasNoMinimum(t *testing.T) {
	for _, renewed := range []bool{false, true} {
		var r Record
		rules := testRules()
		if _, err := r.Ask(request("a", 0, 0), "", false, start, start, rules); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Ask(request("b", time.Minute, 0), "", true, start, start, rules); !errors.Is(err, driver.ErrHeld) {
			t.Fatal(err)
		}
		r.Release("a", 0, start)
		r.Settle(start, rules)
		opens := start.Add(2 * rules.Poll)
		if renewed {
			opens = start.Add(time.Minute)
			if r.Renew("b", start, start.Add(time.Second)) == nil {
				t.Fatal("there is no claim")
			}
		}
		opensAt(t, &r, rules, opens)
	}
}

// The clock is set back by an hour while a name is held or closed.
func TestClockSetBack(t *testing.T) {
	back := start.Add(-time.Hour)
	taken := func(t *testing.T, minHold, delay time.Duration) (*Record, *Rules) {
		r, rules := &Record{}, testRules()
		if _, err := r.Ask(request("a", minHold, delay), "", false, start, start, rules); err != nil {
			t.Fatal(err)
		}
		return r, rules
	}
	t.Run("then it is released", func(t *testing.T) {
		r, _ := taken(t, 0, time.Second)
		r.Settle(back, testRules())
		if !r.Release("a", 0, back) || !r.Idle() {
			t.Errorf("P5: a release left %+v", r.Holds)
		}
	})
	t.Run("then it is released before its minimum", func(t *testing.T) {
		r, rules := taken(t, time.Minute, time.Second)
		r.Settle(back, rules)
		r.Release("a", time.Minute, back)
		opensAt(t, r, rules, back.Add(time.Minute))
	})
	t.Run("after it was released before its minimum", func(t *testing.T) {
		r, rules := taken(t, time.Minute, 0)
		r.Release("a", time.Minute, start)
		r.Settle(back, rules)
		opensAt(t, r, rules, back.Add(time.Minute))
	})
	t.Run("after it vanished", func(t *testing.T) {
		r, rules := taken(t, time.Second, time.Minute)
		r.Settle(start.Add(10*time.Second), rules)
		r.Settle(back, rules)
		opensAt(t, r, rules, back.Add(time.Minute))
	})
	t.Run("then it is renewed, and vanishes", func(t *testing.T) {
		r, rules := taken(t, time.Minute, 0)
		if r.Renew("a", back, back) == nil {
			t.Fatal("there is no hold")
		}
		opensAt(t, r, rules, back.Add(10*time.Second+time.Minute))
	})
}
