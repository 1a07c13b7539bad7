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
		r := &snapshot{row: st.encode(), heads: allPlaces}
		for i := range st.Queue {
			r.places = append(r.places, placeOf(&st.Queue[i]))
		}
		got, err := r.decode("a name")
		if err != nil {
			t.Fatalf("%v (seed %d)", err, seed)
		}
		if again := got.encode(); again != r.row {
			t.Fatalf("a row\n%+v\nis written again as\n%+v (seed %d)", r, again, seed)
		}
		if !reflect.DeepEqual(kept(got), kept(st)) {
			t.Fatalf("a state\n%+v\nis read as\n%+v (seed %d)", st, got, seed)
		}
		forms[r.extra == ""]++
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
		req.Tokens = 1 + rng.IntN(3)
		s.Queue = append(s.Queue, record.Place{Request: req, Client: "c", Joined: at(), Until: at(), Asked: driver.Instant(rng.Uint32())})
	}
	for i := range rng.IntN(5) / 3 {
		s.tombstones = append(s.tombstones, tombstone{Owner: fmt.Sprint("gone ", i), Broken: rng.IntN(2) == 0, Until: at()})
	}
	return s
}

func TestDamagedRecord(t *testing.T) {
	r := row{extra: "{"}
	if _, err := r.decode("n"); err == nil {
		t.Error("a damaged record was read")
	}
	p := placeRow{Owner: "an owner", Request: "{"}
	if _, err := p.decode("n"); err == nil {
		t.Error("a damaged place was read")
	}
}
