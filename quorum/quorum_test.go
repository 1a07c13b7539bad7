package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/vote"
	"github.com/holdfastlock/holdfast/internal/wrap"
	"github.com/holdfastlock/holdfast/memlock"
	"github.com/holdfastlock/holdfast/quorum"
)

// bound is how long something may take that takes no time: a test that waits for so long hangs.
const bound = time.Minute

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

func (w *world) release(d driver.Driver, g driver.Grant) {
	w.Helper()
	if err := d.Release(w.Context(), []driver.Grant{g})[0]; err != nil {
		w.Fatalf("Release: %v", err)
	}
}

// votes returns how many stores have a vote for the owner.
func (w *world) votes(owner string) (n int) {
	w.Helper()
	for _, s := range w.stores {
		d := s.Client()
		info, err := d.(driver.Operator).Inspect(w.Context(), "orders/42")
		if err != nil {
			w.Fatal(err)
		}
		for _, h := range info.Holders {
			if h.Owner == owner {
				n++
			}
		}
		d.Close()
	}
	return n
}

// eventually waits until the owner has so many votes.
func (w *world) eventually(owner string, votes int) {
	w.Helper()
	for end := time.Now().Add(bound); w.votes(owner) != votes; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			w.Fatalf("%s has %d votes after %v, want %d", owner, w.votes(owner), bound, votes)
		}
	}
}

// TestSlowNodes: no operation waits for a minority of nodes that do not answer. They would answer only
// after the test.
func TestSlowNodes(t *testing.T) {
	w := newWorld(t, 5, patient)
	w.wires[1].HoldReplies()
	w.wires[4].HoldRequests()
	g := w.take(w.driver, request("a"))
	if r := w.driver.Renew(t.Context(), []driver.Grant{g})[0]; r.Err != nil || r.Valid != g.Valid {
		t.Errorf("renewal: %+v", r)
	}
	if info, err := w.driver.(driver.Operator).Inspect(t.Context(), g.Name); err != nil || len(info.Holders) != 1 || info.Holders[0].Owner != "a" {
		t.Errorf("Inspect: %+v, %v", info, err)
	}
	if _, err := w.driver.Try(t.Context(), request("b")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("Try of a held name: %v, want ErrHeld", err)
	}
	w.release(w.driver, g)
	w.release(w.other, w.take(w.other, request("c")))
	w.wires[1].ReleaseReplies()
	w.wires[4].ReleaseRequests()
	w.eventually("a", 0)
	w.eventually("b", 0)
}

// briefly is a store that lets its holds count for less than their TTL.
type briefly struct {
	wrap.Forward
	valid time.Duration
}

func (b briefly) Try(ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, err := b.Forward.Try(ctx, r)
	g.Valid = b.valid
	return g, err
}

func (b briefly) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	renewals := b.Forward.Renew(ctx, grants)
	for i := range renewals {
		renewals[i].Valid = b.valid
	}
	return renewals
}

// TestTrustOfVotes: a hold counts for no longer than its votes do.
func TestTrustOfVotes(t *testing.T) {
	const valid = bound / 2
	w := newWorld(t, 1, patient)
	var nodes []driver.Driver
	for range 3 {
		nodes = append(nodes, briefly{wrap.Forward{Driver: memlock.NewStore(nil).Client()}, valid})
	}
	d := w.open(nodes, patient)
	g := w.take(d, request("a"))
	if g.Valid >= valid || g.Valid < valid*9/10 {
		t.Errorf("P1: votes count for %v, and the hold for %v", valid, g.Valid)
	}
	if r := d.Renew(t.Context(), []driver.Grant{g})[0]; r.Err != nil || r.Valid != g.Valid {
		t.Errorf("P1: renewed votes count for %v, and the hold for %v, %v", valid, r.Valid, r.Err)
	}
	w.release(d, g)
}

// TestNoMajority: if three of five nodes cannot be reached, the error says so, and no vote is left.
func TestNoMajority(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 5, nil)
	for _, wire := range w.wires[:2] {
		wire.Partition()
	}
	g := w.take(w.driver, request("a"))
	w.release(w.driver, g)
	w.wires[2].Partition()
	_, err := w.driver.Try(t.Context(), request("b"))
	if err == nil || errors.Is(err, driver.ErrHeld) {
		t.Errorf("Try without a majority: %v", err)
	}
	w.eventually("b", 0)
	if _, err := w.driver.(driver.Operator).Inspect(t.Context(), "orders/42"); err == nil {
		t.Error("Inspect shows a name without a majority")
	}
}

// TestNoVoteLeft: an attempt that is refused takes back the votes that it had got, also those whose
// answers come later.
func TestNoVoteLeft(t *testing.T) {
	w := newWorld(t, 5, patient)
	w.take(w.other, request("a"))
	w.eventually("a", 5)
	// Two nodes have lost the vote of A.
	for _, s := range w.stores[:2] {
		d := s.Client()
		d.Release(t.Context(), []driver.Grant{{Request: request("a")}})
		d.Close()
	}
	w.wires[1].HoldReplies()
	if _, err := w.driver.Try(t.Context(), request("b")); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Try of a held name: %v, want ErrHeld", err)
	}
	w.eventually("b", 1) // at node 0 it is withdrawn; node 1 has given it, and nobody knows
	w.wires[1].ReleaseReplies()
	w.eventually("b", 0)
}

// TestGivenUp: a caller that gives up gets ErrUncertain, and what it asked for is withdrawn, also where it
// arrives after that.
func TestGivenUp(t *testing.T) {
	w := newWorld(t, 3, patient)
	for _, wire := range w.wires[1:] {
		wire.HoldRequests()
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	g, err := w.driver.Try(ctx, request("a"))
	if !errors.Is(err, driver.ErrUncertain) || !errors.Is(err, context.Canceled) {
		t.Fatalf("Try: %v, want ErrUncertain and Canceled", err)
	}
	for _, wire := range w.wires[1:] {
		wire.ReleaseRequests()
	}
	w.release(w.driver, g)
	w.eventually("a", 0)
	w.release(w.other, w.take(w.other, request("b")))
}

// TestReleasedBitByBit: a majority of nodes has confirmed a release, although there never was a majority at once.
func TestReleasedBitByBit(t *testing.T) {
	w := newWorld(t, 5, nil)
	r := request("a")
	r.TTL = time.Hour // or the end of the votes would do
	g := w.take(w.driver, r)
	w.eventually("a", 5)
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
	w.eventually("a", 3)
	cut(0, 1, 3, 4)
	w.eventually("a", 2) // node 2 is told in the background
	if err := w.driver.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
		t.Errorf("Release when the third of five nodes is there, but not the first two: %v", err)
	}
}

// TestReleaseOfForgottenVotes: a majority of nodes has lost its votes, and others are asking there, none of whom has a
// majority. The hold that is released was valid all the same.
func TestReleaseOfForgottenVotes(t *testing.T) {
	w := newWorld(t, 5, patient)
	g := w.take(w.driver, request("a"))
	w.eventually("a", 5)
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
	w.eventually("a", 0)
}

// TestRestoresVotes: a renewal restores the votes that nodes have lost, so that a hold outlives the loss of
// every one of its first votes.
func TestRestoresVotes(t *testing.T) {
	w := newWorld(t, 5, patient)
	g := w.take(w.driver, request("a"))
	w.eventually("a", 5)
	for i := range w.stores {
		w.stores[i].Advance(2 * bound) // the vote ends
		if r := w.driver.Renew(t.Context(), []driver.Grant{g})[0]; r.Err != nil {
			t.Fatalf("renewal after node %d lost its vote: %v", i, r.Err)
		}
		w.eventually("a", 5)
	}
	w.release(w.driver, g)
	w.eventually("a", 0)
}

// TestNotRevived: a hold whose votes have ended everywhere is not renewed, although every node would give
// its vote again.
func TestNotRevived(t *testing.T) {
	w := newWorld(t, 3, patient)
	r := request("a")
	r.TTL = 500 * time.Millisecond
	g := w.take(w.driver, r)
	time.Sleep(2 * r.TTL)
	if renewal := w.driver.Renew(t.Context(), []driver.Grant{g})[0]; !errors.Is(renewal.Err, driver.ErrNotHeld) {
		t.Errorf("renewal of a hold that has ended: %+v", renewal)
	}
	w.eventually("a", 0)
}

// voter is a store in memory that says in which life it is.
type voter struct {
	driver.Driver
	life     atomic.Uint64
	admitted atomic.Uint64 // a life
	forgets  bool          // it is not durable
}

func (v *voter) Votes() bool { return true }

func (v *voter) Vote(ctx context.Context, r driver.Request, life vote.Life) (driver.Grant, bool, error) {
	g, err := v.Try(ctx, r)
	return g, life == vote.Life(v.life.Load()), err
}

func (v *voter) Life(_ context.Context, longest time.Duration) (vote.Life, bool, time.Duration, error) {
	life := v.life.Load()
	return vote.Life(life), life == v.admitted.Load(), longest, nil
}

func (v *voter) Durable(context.Context) (bool, error) { return !v.forgets, nil }

func (v *voter) Admit(_ context.Context, life vote.Life) error {
	v.admitted.Store(uint64(life))
	return nil
}

// TestRenewedInAnotherLife: P1: Suppose A holds a name, and two of three nodes restart without memory. A
// request of A's that was under way for long takes the votes again, in their new life, beside votes for B
// that they have forgotten. They renew A's votes, which must not count yet.
func TestRenewedInAnotherLife(t *testing.T) {
	voters := make([]*voter, 3)
	drivers := make([]driver.Driver, len(voters))
	for i := range voters {
		v := &voter{Driver: memlock.NewStore(nil).Client()}
		v.life.Store(1)
		v.admitted.Store(1)
		voters[i], drivers[i] = v, v
	}
	w := &world{TB: t}
	d := w.open(drivers, &quorum.Options{NodeTimeout: bound, MaxTTL: 2 * bound})
	g := w.take(d, request("a"))
	renew := func() error { return d.Renew(t.Context(), []driver.Grant{g})[0].Err }
	if err := renew(); err != nil {
		t.Fatal(err)
	}
	for _, v := range voters[1:] {
		v.life.Store(2)
	}
	if err := renew(); err == nil || driver.Gone(err) {
		t.Errorf("renewed by two nodes that may have forgotten another's votes: %v", err)
	}
	for _, v := range voters[1:] {
		v.admitted.Store(2)
	}
	if err := renew(); err != nil {
		t.Errorf("renewed by nodes that count again: %v", err)
	}
	w.release(d, g)
}

// forgetful is a store that may come back without its holds, and does not tell when.
type forgetful struct{ driver.Driver }

func (f forgetful) Caps() driver.Caps {
	c := f.Driver.Caps()
	c.Guarantees.Faults = map[driver.Fault]driver.Verdict{driver.StoreRestart: {Exclusion: driver.Breaks}}
	return c
}

// TestForgetfulNode: P1: a node is refused whose restart could let two have a majority.
func TestForgetfulNode(t *testing.T) {
	nodes := func() []driver.Driver {
		return []driver.Driver{memlock.NewStore(nil).Client(), forgetful{memlock.NewStore(nil).Client()}}
	}
	if _, err := quorum.New(nodes(), nil); err == nil || !strings.Contains(err.Error(), "may forget") {
		t.Errorf("a node that forgets and does not tell: %v", err)
	}
	w := &world{TB: t}
	w.open(nodes(), &quorum.Options{Durable: true})
}

// TestBreak: an operator breaks by the number that Inspect shows, and the holder learns of it by its
// renewal.
func TestBreak(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 5, nil)
	g := w.take(w.driver, request("a"))
	w.wires[0].Partition()
	operator := w.driver.(interface {
		driver.Operator
		driver.Operator
	})
	info, err := operator.Inspect(t.Context(), g.Name)
	if err != nil || len(info.Holders) != 1 {
		t.Fatalf("%+v, %v", info, err)
	}
	token := info.Holders[0].Token
	if err := operator.Break(t.Context(), g.Name, token+2); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Break with another token: %v", err)
	}
	if err := operator.Break(t.Context(), g.Name, token); err != nil {
		t.Fatalf("Break: %v", err)
	}
	if r := w.driver.Renew(t.Context(), []driver.Grant{g})[0]; !errors.Is(r.Err, driver.ErrBroken) {
		t.Errorf("renewal of a broken hold: %+v", r)
	}
	w.wires[0].Heal()
	w.eventually("a", 0)
}

// TestDrift: the validity of a grant is the TTL less the drift, and counts from before the first request.
func TestDrift(t *testing.T) {
	w := newWorld(t, 3, nil)
	before := driver.HostClock.Now()
	g := w.take(w.driver, request("a"))
	if want := bound - bound/100 - 2*time.Millisecond; g.Valid != want || g.Since < before {
		t.Errorf("valid for %v from %v after the call, want %v", g.Valid, g.Since.Sub(before), want)
	}
	if g.Token != 0 || w.driver.Caps().Fencing {
		t.Errorf("a grant of nodes that share nothing has token %d", g.Token)
	}
}

func TestBadInput(t *testing.T) {
	a := memlock.NewStore(nil).Client()
	for what, o := range map[string]struct {
		drivers []driver.Driver
		options quorum.Options
	}{
		"no node":            {},
		"a nil":              {drivers: []driver.Driver{a, nil}},
		"a node twice":       {drivers: []driver.Driver{a, a}},
		"too many":           {drivers: make([]driver.Driver, 16)},
		"a negative timeout": {[]driver.Driver{a}, quorum.Options{NodeTimeout: -1}},
		"a short poll":       {[]driver.Driver{a}, quorum.Options{Poll: 1}},
	} {
		if _, err := quorum.New(o.drivers, &o.options); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
	d, err := quorum.New([]driver.Driver{a}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Try(t.Context(), driver.Request{Mode: driver.Slot, Slots: 2, Permits: 1}); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("a semaphore: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if err := d.Close(); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("closed twice: %v", err)
	}
	if _, err := d.Try(t.Context(), request("a")); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Try of a closed driver: %v", err)
	}
}

// TestContention: clients that want one name exclude each other, and each gets it in the end.
func TestContention(t *testing.T) {
	w := newWorld(t, 5, nil)
	var inside, total int // the lock guards them
	done := make(chan error)
	const clients, turns = 4, 25
	for c := range clients {
		go func() {
			done <- func() error {
				for i := range turns {
					r := request(fmt.Sprint(c, "/", i))
					var g driver.Grant
					var err error
					for end := time.Now().Add(bound); ; time.Sleep(time.Duration(1+c) * time.Millisecond) {
						if g, err = w.other.Try(w.Context(), r); err == nil {
							break
						}
						if r.Owner += "+"; !errors.Is(err, driver.ErrHeld) || time.Now().After(end) {
							return err
						}
					}
					if inside++; inside != 1 {
						return errors.New("two are inside")
					}
					total++
					inside--
					if err := w.other.Release(w.Context(), []driver.Grant{g})[0]; err != nil {
						return err
					}
				}
				return nil
			}()
		}()
	}
	for range clients {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if total != clients*turns {
		t.Errorf("%d turns, want %d", total, clients*turns)
	}
}

// TestNothing: to renew or release nothing takes no time.
func TestNothing(t *testing.T) {
	w := newWorld(t, 3, nil)
	if r := w.driver.Renew(t.Context(), nil); len(r) != 0 {
		t.Errorf("renewals of nothing: %v", r)
	}
	if errs := w.driver.Release(t.Context(), nil); len(errs) != 0 {
		t.Errorf("releases of nothing: %v", errs)
	}
}
