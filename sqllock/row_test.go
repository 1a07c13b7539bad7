package sqllock

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/record"
)

// TestRowKeepsState: what a state is written as is read as the same state.
func TestRowKeepsState(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	forms := map[bool]int{}
	for range 5000 {
		st := randomState(rng)
		r := st.encode()
		got, err := r.decode("a name")
		if err != nil {
			t.Fatalf("%v (seed %d)", err, seed)
		}
		if again := got.encode(); again != r {
			t.Fatalf("a row\n%+v\nis written again as\n%+v (seed %d)", r, again, seed)
		}
		if !reflect.DeepEqual(kept(got), kept(st)) {
			t.Fatalf("a state\n%+v\nis read as\n%+v (seed %d)", st, got, seed)
		}
		forms[r.record == ""]++
	}
	if forms[true] == 0 || forms[false] == 0 {
		t.Errorf("the forms are %v (seed %d)", forms, seed)
	}
}

// kept leaves out what a row does not keep: of holds that were renewed or are
// told by a push, what their owner counts from.
func kept(s *state) state {
	c := *s
	c.Holds = append([]record.Hold{}, s.Holds...)
	for i := range c.Holds {
		if h := &c.Holds[i]; !h.Claim || s.plain() {
			h.Since, h.Valid, h.Claim = 0, 0, false
		}
		if h := &c.Holds[i]; h.Last == h.Token { // a block of one
			h.Last = 0
		}
	}
	c.Queue = append([]record.Place{}, s.Queue...)
	c.tombstones = append([]tombstone{}, s.tombstones...)
	return c
}

func randomState(rng *rand.Rand) *state {
	at := func() driver.Instant { return instant(1e15 + rng.Int64N(1e6)) }
	request := func(i int) driver.Request {
		r := driver.Request{
			Name: "a name", Owner: fmt.Sprint("owner ", i), Mode: driver.Mode(rng.IntN(3)), Slots: rng.IntN(3), Permits: rng.IntN(3),
			TTL: duration(1 + rng.Int64N(1e6)), LockDelay: duration(rng.Int64N(2) * 1e6), MinHold: duration(rng.Int64N(2) * 1e6), Note: strings.Repeat(`"ü`, rng.IntN(3)),
		}
		if r.Mode != driver.Slot {
			r.Slots, r.Permits = 0, 0
		}
		return r
	}
	s := &state{last: driver.Token(rng.Int64N(5))}
	for i := range rng.IntN(3) {
		h := record.Hold{Request: request(i), Client: fmt.Sprint(rng.IntN(2)), Token: s.last, Last: s.last, Taken: at(), Expires: at(), Since: driver.Instant(rng.Uint32())}
		h.Claim = rng.IntN(2) == 0
		h.Valid = []time.Duration{h.TTL, h.TTL / 2}[rng.IntN(2)].Truncate(time.Microsecond) + time.Microsecond
		if rng.IntN(3) == 0 {
			h.Mode, h.Slots, h.Permits = driver.Exclusive, 0, 0
		}
		if rng.IntN(3) == 0 {
			s.last += 10
			h.Last = s.last
		}
		if rng.IntN(4) == 0 {
			h.Closed, h.Owner, h.Client = true, "", ""
		}
		s.Holds = append(s.Holds, h)
	}
	for i := range rng.IntN(5) / 2 {
		req := request(10 + i)
		req.Tokens = rng.IntN(3)
		s.Queue = append(s.Queue, record.Place{Request: req, Client: "c", Joined: at(), Until: at(), Asked: driver.Instant(rng.Uint32())})
	}
	for i := range rng.IntN(5) / 3 {
		s.tombstones = append(s.tombstones, tombstone{Owner: fmt.Sprint("gone ", i), Broken: rng.IntN(2) == 0, Until: at()})
	}
	return s
}

func TestDamagedRecord(t *testing.T) {
	r := row{record: "{"}
	if _, err := r.decode("n"); err == nil {
		t.Error("a damaged record was read")
	}
}

// TestBlockAmongVersions: a program of the version before rewrites the record of a hold with
// a block of tokens, and leaves the end of the block out. Then nothing of the block is given
// out again (P3).
func TestBlockAmongVersions(t *testing.T) {
	for _, rewritten := range []bool{false, true} {
		c := &client{caps: driver.Caps{Poll: time.Second}, waiters: map[string]*waiter{}}
		ask := func(r row, now int64, owner string, tokens int) (*attempt, driver.Grant) {
			a, err := c.newAttempt("n", &snapshot{row: r, now: now})
			if err != nil {
				t.Fatal(err)
			}
			a.Release("a", 0, a.last-tokenBlock+4, a.now, &a.rules) // if there is a hold: 4 were used
			a.settle(a.now, &a.rules)
			req := driver.Request{Name: "n", Owner: owner, TTL: time.Minute, Tokens: tokens}
			h, err := a.Ask(req, "", false, 1, a.now, &a.rules)
			if err != nil {
				t.Fatal(err)
			}
			return a, a.Grant(h)
		}
		const now = 1e15
		a, g := ask(row{}, now, "a", tokenBlock)
		r := a.encode()
		if rewritten {
			r.record = strings.Replace(r.record, fmt.Sprintf(`"b":%d,`, a.last), "", 1)
		}
		_, next := ask(r, now, "b", 1) // the clock stands still
		last := g.Token + 3
		if rewritten {
			last = g.Token + tokenBlock - 1
		}
		if next.Token != last+tokenGap {
			t.Errorf("P3: rewritten %t: token %d after %d to %d", rewritten, next.Token, g.Token, last)
		}
	}
}
