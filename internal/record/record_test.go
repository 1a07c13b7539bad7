package record

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

const start = driver.Instant(1000 * time.Hour)

func testRules() *Rules {
	last := driver.Token(0)
	return &Rules{
		Poll:    time.Second,
		Last:    &last,
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
		r.Release("a", 0, 0, start, rules)
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
		r, rules := taken(t, 0, time.Second)
		r.Settle(back, rules)
		if !r.Release("a", 0, 0, back, rules) || !r.Idle() {
			t.Errorf("P5: a release left %+v", r.Holds)
		}
	})
	t.Run("then it is released before its minimum", func(t *testing.T) {
		r, rules := taken(t, time.Minute, time.Second)
		r.Settle(back, rules)
		r.Release("a", time.Minute, 0, back, rules)
		opensAt(t, r, rules, back.Add(time.Minute))
	})
	t.Run("after it was released before its minimum", func(t *testing.T) {
		r, rules := taken(t, time.Minute, 0)
		r.Release("a", time.Minute, 0, start, rules)
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

// TestBlocks: tokens that were reserved and not used are given out again, unless others
// came after them or nobody knows how many were used (P3).
func TestBlocks(t *testing.T) {
	const block = 100
	for _, c := range []struct {
		name string
		end  func(*Record, *Rules, driver.Token)
		next driver.Token
	}{
		{"none is used but the first", func(r *Record, rules *Rules, first driver.Token) {
			r.Release("a", 0, first, start, rules)
		}, 2},
		{"some are used", func(r *Record, rules *Rules, first driver.Token) {
			r.Release("a", 0, first+6, start, rules)
		}, 8},
		{"some are used, and a renewal has told of it", func(r *Record, rules *Rules, first driver.Token) {
			r.Renew("a", start, start).HandedOver(&driver.Grant{Token: first + 6, HandedOver: true})
			r.Release("a", 0, first+8, start, rules)
		}, 10},
		{"all are used", func(r *Record, rules *Rules, first driver.Token) {
			r.Release("a", 0, first+block-1, start, rules)
		}, block + 1},
		{"a release that knows no token", func(r *Record, rules *Rules, first driver.Token) {
			r.Release("a", 0, 0, start, rules)
		}, block + 1},
		{"more than there are", func(r *Record, rules *Rules, first driver.Token) {
			r.Release("a", 0, first+block, start, rules)
		}, block + 1},
		{"a break", func(r *Record, rules *Rules, first driver.Token) { r.Break(first) }, block + 1},
		{"a renewal tells of some, and the holder vanishes", func(r *Record, rules *Rules, first driver.Token) {
			r.Renew("a", start, start).HandedOver(&driver.Grant{Token: first + 6, HandedOver: true})
			r.Settle(start.Add(time.Minute), rules)
		}, block + 1},
		{"less than a renewal has told", func(r *Record, rules *Rules, first driver.Token) {
			r.Renew("a", start, start).HandedOver(&driver.Grant{Token: first + 6, HandedOver: true})
			r.Release("a", 0, first, start, rules)
		}, block + 1},
		{"a release within the minimum hold", func(r *Record, rules *Rules, first driver.Token) {
			r.Release("a", time.Second, first+6, start, rules)
		}, 8},
		{"a downgrade, and a reader comes and goes", func(r *Record, rules *Rules, first driver.Token) {
			r.Downgrade("a", start, start)
			reader := request("reader", 0, 0)
			reader.Mode = driver.Shared
			h, err := r.Ask(reader, "", false, start, start, rules)
			if err != nil || h.Token != block+1 {
				t.Errorf("P3: a reader beside a downgraded hold: %+v, %v", h, err)
			}
			r.Release("reader", 0, h.Token, start, rules)
			r.Release("a", 0, first+6, start, rules)
		}, block + 2},
		{"the clock is set back, and the hold is released", func(r *Record, rules *Rules, first driver.Token) {
			rules.Least = -1000
			r.Release("a", 0, first+6, start.Add(-time.Hour), rules)
		}, 8},
		{"a claim with a block vanishes", func(r *Record, rules *Rules, first driver.Token) {
			b := request("claim", 0, 0)
			b.Tokens = block
			r.Ask(b, "", true, start, start, rules)
			r.Release("a", 0, first+6, start, rules)
			r.Settle(start, rules)
			if h := r.Held("claim"); h == nil || h.Token != 8 || r.Grant(h).Block != block {
				t.Errorf("P3: the claim is %+v", h)
			}
		}, 8 + block},
		{"the holder vanishes", func(r *Record, rules *Rules, first driver.Token) {
			r.Settle(start.Add(time.Minute), rules)
		}, block + 1},
	} {
		var r Record
		rules := testRules()
		a := request("a", 0, 0)
		a.Tokens = block
		h, err := r.Ask(a, "", false, start, start, rules)
		if err != nil {
			t.Fatal(err)
		}
		if g := r.Grant(h); g.Token != 1 || g.Block != block {
			t.Errorf("%s: the grant has %d tokens from %d", c.name, g.Block, g.Token)
		}
		c.end(&r, rules, h.Token)
		now := start.Add(time.Minute)
		r.Settle(now, rules)
		if h, err = r.Ask(request("b", 0, 0), "", false, now, now, rules); err != nil || h.Token != c.next || r.Grant(h).Block != 1 {
			t.Errorf("P3: %s: the next hold is %+v (%v), want token %d", c.name, h, err, c.next)
		}
	}
}

// crowd queues n requests behind a holder, of clients "c0" on, and returns when all have
// confirmed for the last time.
func crowd(t *testing.T, r *Record, rules *Rules, n int) {
	t.Helper()
	if _, err := r.Ask(request("holder", 0, 0), "", false, start, start, rules); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		_, err := r.Ask(request(fmt.Sprint("o", i), 0, 0), fmt.Sprint("c", i), true, start, start, rules)
		held, ok := errors.AsType[*driver.HeldError](err)
		if !ok || held.Ahead != i || held.Queued != i+1 {
			t.Fatalf("place %d: %+v, want %d ahead", i, err, i)
		}
	}
}

// P7: a hundred clients are killed together at any time between two confirmations, and a live one waits
// behind them. The live one has the name within three polls of its being free.
func TestDeadCrowdDelays(t *testing.T) {
	for _, n := range []int{1, 100, 300} {
		for freed := time.Duration(0); freed <= 3*time.Second; freed += 50 * time.Millisecond {
			var r Record
			rules := testRules()
			crowd(t, &r, rules, n)
			if _, err := r.Ask(request("live", 0, 0), "", true, start, start, rules); err == nil {
				t.Fatal("P1: granted beside the holder")
			}
			now := start
			for step := 10 * time.Millisecond; ; now += driver.Instant(step) {
				if now == start.Add(freed) {
					r.Release("holder", 0, 0, now, rules)
				}
				r.Settle(now, rules)
				if h, _ := r.Ask(request("live", 0, 0), "", true, now, now, rules); h != nil {
					break
				}
				if now > start.Add(freed).Add(3*rules.Poll) {
					t.Fatalf("P7: of %d dead ahead, %v after the name was free, there are still %d", n, now.Sub(start)-freed, r.ahead("live"))
				}
			}
		}
	}
}

// P7, P8: of 500 who wait a hundred are killed far behind. When all before them have been served, the next live one has
// the name within three polls, and no live one has lost its place.
func TestRecall(t *testing.T) {
	const n = 500
	alive := func(p Place) bool { return p.Owner < "o200" || p.Owner >= "o300" || len(p.Owner) < 4 }
	var r Record
	rules, now, recalled, won := testRules(), start, map[string]bool{}, []Place{}
	rules.Granted = func(p *Place) { won = append(won, *p) }
	rules.Recall = func(p *Place) { recalled[p.Owner] = true }
	crowd(t, &r, rules, n)
	if got, want := r.Queue[3*driver.FarBehind].Until.Sub(now), 4*rules.Poll; got != want {
		t.Errorf("with %d ahead a place lasts %v, want %v", 3*driver.FarBehind, got, want)
	}
	r.Release("holder", 0, 0, now, rules)
	served := 0
	for last := now; served < n-100; now = now.Add(10 * time.Millisecond) {
		for r.Settle(now, rules); len(won) > 0; r.Settle(now, rules) {
			p := won[0]
			if won = won[1:]; alive(p) {
				last, served = now, served+1
				r.Release(p.Owner, 0, 0, now, rules)
			}
		}
		for _, p := range r.Queue { // those that are near ask each poll
			if alive(p) && (recalled[p.Owner] || p.Until.Sub(now) < rules.Poll) {
				delete(recalled, p.Owner)
				r.Ask(p.Request, p.Client, true, now, now, rules)
			}
		}
		if now.Sub(last) > 3*rules.Poll {
			t.Fatalf("P7, P8: %d live ones were served, then none for %v", served, now.Sub(last))
		}
	}
}

// P9: dead places behind a live one do not pile up while the name is held.
func TestDeadPlacesArePruned(t *testing.T) {
	var r Record
	rules := testRules()
	crowd(t, &r, rules, 1)
	now := start
	for i := range 1000 {
		now = now.Add(100 * time.Millisecond)
		r.Ask(request("holder", 0, 0), "", false, now, now, rules)
		r.Ask(request("o0", 0, 0), "c0", true, now, now, rules)
		r.Settle(now, rules)
		r.Ask(request(fmt.Sprint("passing", i), 0, 0), "", true, now, now, rules)
		if len(r.Queue) > 40 {
			t.Fatalf("%d places after %d that were taken and never confirmed", len(r.Queue), i)
		}
	}
	if r.ahead("o0") != 0 {
		t.Error("P8: the live place has lost its place")
	}
}

// A place lasts for as long as driver.Caps.PlaceLife says, and no longer than that if the clock is
// set back.
func TestPlaceLife(t *testing.T) {
	var r Record
	rules := testRules()
	crowd(t, &r, rules, driver.FarBehind+1)
	for i, want := range map[int]time.Duration{
		0: 2 * time.Second, driver.FarBehind - 1: 2 * time.Second, driver.FarBehind: 2500 * time.Millisecond,
	} {
		if got := r.Queue[i].Until.Sub(start); got != want {
			t.Errorf("with %d ahead a place lasts %v, want %v", i, got, want)
		}
	}
	p := Place{Until: start.Add(time.Hour)}
	if rules.over(&p, start, driver.FarBehind) || p.Until != start.Add(2500*time.Millisecond) {
		t.Errorf("after the clock was set back by an hour a place lasts %v", p.Until.Sub(start))
	}
}

// TestRaise: P3: tokens that are given out after a hold was raised, to a higher or a lower one, are higher than all
// that it had. An expired hold is not revived.
func TestRaise(t *testing.T) {
	var r Record
	rules, last := testRules(), driver.Token(0)
	for i, by := range []driver.Token{1000, -1, 5} {
		h, err := r.Ask(request(fmt.Sprint(i), 0, 0), "", false, start, start, rules)
		if err != nil || h.Token <= last {
			t.Fatalf("P3: %+v (%v) after token %d", h, err, last)
		}
		g, now := r.Grant(h), start
		g.Token += by
		last = max(h.Token, g.Token)
		if by == 5 {
			now = start.Add(time.Minute)
			r.Settle(now, rules)
		}
		if raised := r.Raise(&g, now, now, rules); by == 5 && raised != nil || by != 5 && (raised == nil || raised.Token != g.Token) {
			t.Errorf("P3: raised by %d: %+v", by, raised)
		}
		r.Release(g.Owner, 0, g.Token, now, rules)
	}
}
