//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/record"
)

// twin runs an operation on a record that is read whole, as internal/record specifies it.
func twin(s *state, now driver.Instant, op func(*operation)) *operation {
	t := &operation{state: s, sent: now, now: now}
	t.rules = record.Rules{Poll: poll, Granted: t.granted, Last: &t.last, Least: driver.Token(now / 1000)}
	t.settle()
	op(t)
	return t
}

// TestPartOfTheQueue: operations that read the head of the queue and their own place only write
// the same record, and give the same answers, as those that read all of it.
func TestPartOfTheQueue(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 14))
		now := driver.Instant(time.Hour)
		text := appendState(nil, &state{name: "x"})
		most, far, pruned := 0, 0, 0
		for step := range 400 {
			now = now.Add(time.Duration(rng.Int64N(int64(60 * time.Millisecond))))
			req := driver.Request{
				Name: "x", Owner: fmt.Sprintf("owner %d", rng.IntN(40)), TTL: time.Minute, Note: `a "note"`,
				Unfair: rng.IntN(20) == 0, Mode: driver.Mode(rng.IntN(2)), Tokens: 1,
			}
			if rng.IntN(4) > 0 {
				req.Mode = driver.Exclusive
			}
			kind := rng.IntN(10)
			var holds [2]record.Hold
			var errs [2]error
			op := func(i int) func(*operation) {
				return func(o *operation) {
					switch {
					case kind < 7:
						h, err := o.ask(req, idC, kind > 0)
						if h != nil {
							holds[i] = *h
						}
						errs[i] = err
					case kind == 7:
						o.release(req.Owner, 0, 0)
					default: // the holder's
						for _, h := range o.Holds {
							o.release(h.Owner, 0, 0)
							break
						}
					}
				}
			}
			whole, err := parseState(string(text))
			if err != nil {
				t.Fatal(err)
			}
			before := len(whole.Queue)
			want := twin(whole, now, op(0))
			part, err := parseHead(slices.Clone(text))
			if err != nil {
				t.Fatal(err)
			}
			if len(part.Queue) > 1 {
				t.Fatalf("%d of %d places were read", len(part.Queue), before)
			}
			got := twin(part, now, op(1))
			if got.Far != nil {
				far++
			}
			if errs[0] != nil && len(want.Queue) < before {
				pruned++
			}
			next := appendState(nil, want.state)
			if again := appendState(nil, got.state); string(again) != string(next) || got.err != nil {
				t.Fatalf("seed %d, step %d, kind %d of %s: %v, the record is\n%s\nnot\n%s\nfrom\n%s", seed, step, kind, req.Owner, got.err, again, next, text)
			}
			if !reflect.DeepEqual(holds[0], holds[1]) || !reflect.DeepEqual(errs[0], errs[1]) {
				t.Fatalf("seed %d, step %d: the answer is %+v, %v, not %+v, %v", seed, step, holds[1], errs[1], holds[0], errs[0])
			}
			if !reflect.DeepEqual(got.wake, want.wake) {
				t.Fatalf("seed %d, step %d: %v are woken, not %v", seed, step, got.wake, want.wake)
			}
			if errors.Is(errs[0], driver.ErrHeld) && kind > 0 {
				yes := func(string) bool { return true }
				if a, b := got.before(req.Owner, yes, yes), want.before(req.Owner, yes, yes); a != b {
					t.Fatalf("seed %d, step %d: %q is directly ahead, not %q", seed, step, a, b)
				}
			}
			most, text = max(most, len(want.Queue)), next
		}
		if most < 10 || far < 50 || pruned == 0 {
			t.Errorf("seed %d: at most %d waited, %d places were far behind, %d steps pruned: the test does not reach what it is for", seed, most, far, pruned)
		}
	}
}

// TestNextAhead: whoever is ahead of a waiter and known to be dead is passed over.
func TestNextAhead(t *testing.T) {
	whole := &state{name: "x"}
	for i := range 6 {
		r := request("x")
		r.Owner = fmt.Sprint(i)
		whole.Queue = append(whole.Queue, record.Place{Request: r, Client: fmt.Sprintf("%032x", i)})
	}
	text := appendState(nil, whole)
	for owner, test := range map[string]struct {
		dead []int
		want int // -1: none
	}{
		"0": {nil, -1}, "1": {nil, 0}, "5": {nil, 4}, "4": {[]int{3, 2}, 1}, "3": {[]int{2, 1}, 0}, "2": {[]int{1, 0}, -1},
	} {
		s, err := parseHead(text)
		if err != nil {
			t.Fatal(err)
		}
		s.loadFar(owner)
		probes := 0
		alive := func(client string) bool {
			return !slices.ContainsFunc(test.dead, func(i int) bool { return fmt.Sprintf("%032x", i) == client })
		}
		got := s.before(owner, alive, func(client string) bool { probes++; return alive(client) })
		want := ""
		if test.want >= 0 {
			want = fmt.Sprintf("%032x", test.want)
		}
		if got != want || len(test.dead) == 0 && probes > 0 {
			t.Errorf("%q is ahead of %s with %v dead, after %d probes; not %q", got, owner, test.dead, probes, want)
		}
	}
}

// TestOldRecord: a record of the releases that knew places only which are confirmed at each poll,
// and wrote broken holds behind the queue, is read and goes on to be theirs.
func TestOldRecord(t *testing.T) {
	const head = `name "x"
last 5000
hold 905 1 2 3 4 x 0 0 1000000000 0 0 fair "a" "0123456789abcdef0123456789abcdef" ""
`
	const queue = `wait 5 6 7 x 0 4096 1000000000 0 0 fair "b" "ffffffffffffffffffffffffffffffff" ""
wait 15 16 17 x 0 1 1000000000 0 0 fair "c" "ffffffffffffffffffffffffffffffff" ""
`
	const broken = "broken 9 \"d\"\n"
	old, err := parseHead([]byte(head + queue + broken + "end\n"))
	if err != nil {
		t.Fatal(err)
	}
	if len(old.Queue) != 2 || len(old.broken) != 1 || old.Queue[1].Until != driver.Instant(16).Add(2*poll) {
		t.Errorf("read %+v", old)
	}
	if text := string(appendState(nil, old)); text != head+broken+queue+"end\n" {
		t.Errorf("the record is now\n%s", text)
	}
}

// TestKnownRecord: a record that is kept from one operation to the next has no lines in memory that
// is used again. Suppose B and C wait behind A, C gives up, and D comes: D must find B's place as it
// was, and nothing of C's.
func TestKnownRecord(t *testing.T) {
	c := openTest(t, t.TempDir())
	request := func(owner string) driver.Request {
		return driver.Request{Name: "x", Owner: owner, TTL: time.Minute, Tokens: 1}
	}
	if _, err := c.Try(t.Context(), request("a")); err != nil {
		t.Fatal(err)
	}
	queue := func(owner string, ahead int) {
		t.Helper()
		held := (*driver.HeldError)(nil)
		if _, err := c.Enqueue(t.Context(), request(owner)); !errors.As(err, &held) || held.Ahead != ahead || held.Queued != ahead+1 {
			t.Fatalf("%s: %+v, want %d ahead", owner, err, ahead)
		}
	}
	for round := range 3 {
		queue("b", 0)
		queue(fmt.Sprint("c", round), 1)
		for i := range c.store.stripes {
			c.store.stripes[i].drop() // as if another process had written the record meanwhile
		}
		for _, err := range c.Release(t.Context(), []driver.Grant{{Request: request(fmt.Sprint("c", round))}}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		for i := range c.store.stripes {
			f := c.store.stripes[i].open
			if f == nil || f.known == nil {
				continue
			}
			if len(f.known.rest) > 0 || f.known.Unloaded > 0 {
				t.Fatalf("the record is kept with %d lines, %q, that are in memory which is used again", f.known.Unloaded, f.known.rest)
			}
		}
		queue(fmt.Sprint("d", round), 1)
		for _, err := range c.Release(t.Context(), []driver.Grant{{Request: request(fmt.Sprint("d", round))}}) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}
