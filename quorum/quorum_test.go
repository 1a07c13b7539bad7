package quorum_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/memlock"
	"github.com/holdfastlock/holdfast/quorum"
)

// bound is how long something may take that takes no time: a test that waits for so long hangs.
const bound = time.Minute

// eventually waits until something is true.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(bound); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", bound, what)
		}
	}
}

// world is a quorum of stores in memory, with a network between each store and the client under test.
type world struct {
	testing.TB
	stores []*memlock.Store
	wires  []*chaos.Driver
	driver driver.Driver // behind the wires
	other  driver.Driver // another client, without them
}

func newWorld(t testing.TB, nodes int, o *quorum.Options) *world {
	t.Helper()
	w := &world{TB: t}
	var mine, direct []driver.Driver
	for range nodes {
		store := memlock.NewStore(nil)
		wire := chaos.New(store.Client(), chaos.Options{})
		w.stores, w.wires = append(w.stores, store), append(w.wires, wire)
		mine, direct = append(mine, wire), append(direct, store.Client())
	}
	w.driver, w.other = w.open(mine, o), w.open(direct, o)
	return w
}

func (w *world) open(drivers []driver.Driver, o *quorum.Options) driver.Driver {
	w.Helper()
	d, err := quorum.New(drivers, o)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		for _, wire := range w.wires {
			wire.ReleaseRequests()
			wire.ReleaseReplies()
		}
		if err := d.Close(); err != nil {
			w.Errorf("Close: %v", err)
		}
	})
	return d
}

// patient has a time-out by which no node is given up in a test.
var patient = &quorum.Options{NodeTimeout: bound}

func request(owner string) driver.Request {
	return driver.Request{Name: "orders/42", Owner: owner, TTL: bound}
}

func (w *world) take(d driver.Driver, r driver.Request) driver.Grant {
	w.Helper()
	g, err := d.Try(w.Context(), r)
	if err != nil {
		w.Fatalf("Try of a free name: %v", err)
	}
	return g
}

func (w *world) renew(d driver.Driver, g driver.Grant) driver.Renewal {
	return d.Renew(w.Context(), []driver.Grant{g})[0]
}

func (w *world) release(d driver.Driver, g driver.Grant) {
	w.Helper()
	if err := d.Release(w.Context(), []driver.Grant{g})[0]; err != nil {
		w.Fatalf("Release: %v", err)
	}
}

// tokens returns the tokens that the stores have on record for the owner's hold. Stores without it have none.
func (w *world) tokens(owner string) (tokens []driver.Token) {
	w.Helper()
	for _, s := range w.stores {
		d := s.Client()
		info, err := d.(driver.Operator).Inspect(w.Context(), "orders/42")
		if err != nil {
			w.Fatal(err)
		}
		for _, h := range info.Holders {
			if h.Owner == owner {
				tokens = append(tokens, h.Token)
			}
		}
		d.Close()
	}
	return tokens
}

// votes waits until so many stores have a vote for the owner.
func (w *world) votes(owner string, votes int) {
	w.Helper()
	eventually(w, fmt.Sprintf("%d votes for %s", votes, owner), func() bool { return len(w.tokens(owner)) == votes })
}

// shown returns the holds that a client's Inspect shows.
func (w *world) shown(d driver.Driver) []driver.Holder {
	w.Helper()
	info, err := d.(driver.Operator).Inspect(w.Context(), "orders/42")
	if err != nil {
		w.Fatal(err)
	}
	return info.Holders
}

// TestSlowNodes: holds are taken, renewed and released without a minority of nodes that do not answer, and shown
// after two seconds. The nodes would answer only after the test. The validity of a grant is the TTL less the drift,
// and counts from before the first request.
func TestSlowNodes(t *testing.T) {
	w := newWorld(t, 5, patient)
	w.wires[1].HoldReplies()
	w.wires[4].HoldRequests()
	before := driver.HostClock.Now()
	g := w.take(w.driver, request("a"))
	if want := bound - bound/100 - 2*time.Millisecond; g.Valid != want || g.Since < before || g.Token != 0 || w.driver.Caps().Fencing {
		t.Errorf("granted for %v from %v after the call, with token %d, want %v and no token", g.Valid, g.Since.Sub(before), g.Token, want)
	}
	if r := w.renew(w.driver, g); r.Err != nil || r.Valid != g.Valid {
		t.Errorf("renewal: %+v", r)
	}
	if holders := w.shown(w.driver); len(holders) != 1 || holders[0].Owner != "a" {
		t.Errorf("Inspect shows %+v", holders)
	}
	if _, err := w.driver.Try(t.Context(), request("b")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("Try of a held name: %v, want ErrHeld", err)
	}
	w.release(w.driver, g)
	w.release(w.other, w.take(w.other, request("c")))
	w.wires[1].ReleaseReplies()
	w.wires[4].ReleaseRequests()
	w.votes("a", 0)
	w.votes("b", 0)
}

// TestNoVoteLeft: P6: an attempt that is refused takes back the votes that it had got, also those whose
// answers come later.
func TestNoVoteLeft(t *testing.T) {
	w := newWorld(t, 5, patient)
	w.take(w.other, request("a"))
	w.votes("a", 5)
	for _, s := range w.stores[:2] { // two nodes lose the vote of A
		d := s.Client()
		d.Release(t.Context(), []driver.Grant{{Request: request("a")}})
		d.Close()
	}
	w.wires[1].HoldReplies()
	for _, wire := range w.wires[2:] {
		wire.HoldRequests()
	}
	refused := make(chan error)
	go func() {
		_, err := w.driver.Try(t.Context(), request("b"))
		refused <- err
	}()
	w.votes("b", 2)
	for _, wire := range w.wires[2:] {
		wire.ReleaseRequests()
	}
	if err := <-refused; !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Try of a held name: %v, want ErrHeld", err)
	}
	w.votes("b", 1) // at node 0 it is withdrawn; node 1 has given it, and nobody knows
	w.wires[1].ReleaseReplies()
	w.votes("b", 0)
}

// TestOwnVoteInTheWay: an attempt is not refused because of a vote that the same client is about to withdraw.
func TestOwnVoteInTheWay(t *testing.T) {
	w := newWorld(t, 3, patient)
	a := w.take(w.other, request("a"))
	w.votes("a", 3)
	for i, owner := range []string{"a", "a", "c"} { // node 0 and, later, node 1 are free; node 2 stays with C
		d := w.stores[i].Client()
		defer d.Close()
		if i != 1 {
			d.Release(t.Context(), []driver.Grant{{Request: request("a")}})
		}
		if owner == "c" {
			w.take(d, request("c"))
		}
	}
	w.wires[0].HoldReplies()
	if _, err := w.driver.Try(t.Context(), request("b")); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Try of a held name: %v, want ErrHeld", err)
	}
	w.votes("b", 1)
	w.release(w.other, a)
	w.votes("a", 0)
	next := make(chan error, 1)
	go func() {
		_, err := w.driver.Try(t.Context(), request("d"))
		next <- err
	}()
	w.votes("d", 1)
	w.wires[0].ReleaseReplies()
	if err := <-next; err != nil {
		t.Errorf("Try of a name that a majority has free: %v", err)
	}
}

// TestReleasedBitByBit: a majority of nodes has confirmed a release, although there never was a majority at once.
func TestReleasedBitByBit(t *testing.T) {
	w := newWorld(t, 5, nil)
	r := request("a")
	r.TTL = time.Hour // or the end of the votes would do
	g := w.take(w.driver, r)
	w.votes("a", 5)
	cut := func(nodes ...int) {
		for i, wire := range w.wires {
			if wire.Heal(); slices.Contains(nodes, i) {
				wire.Partition()
			}
		}
	}
	cut(2, 3, 4)
	if err := w.driver.Release(t.Context(), []driver.Grant{g})[0]; err == nil || driver.Gone(err) {
		t.Errorf("Release at two of five nodes: %v", err)
	}
	w.votes("a", 3)
	cut(0, 1, 3, 4)
	w.votes("a", 2) // node 2 is told in the background
	if err := w.driver.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
		t.Errorf("Release when the third of five nodes is there, but not the first two: %v", err)
	}
}

// TestReleaseOfForgottenVotes: a majority of nodes has lost its votes, and others are asking there, none of whom has a
// majority. The hold that is released was valid all the same.
func TestReleaseOfForgottenVotes(t *testing.T) {
	w := newWorld(t, 5, patient)
	g := w.take(w.driver, request("a"))
	w.votes("a", 5)
	for i, s := range w.stores[:3] {
		s.Advance(2 * bound) // the vote ends
		d := s.Client()
		w.take(d, request(fmt.Sprint("b", i)))
		d.Close()
	}
	for _, wire := range w.wires[3:] {
		wire.HoldRequests() // so that the others answer first
	}
	w.release(w.driver, g)
	for _, wire := range w.wires[3:] {
		wire.ReleaseRequests()
	}
	w.votes("a", 0)
}
