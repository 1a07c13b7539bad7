package quorum_test

import (
	"context"
	"errors"
	"maps"
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

// voter is a store in memory that says in which life it is.
type voter struct {
	wrap.Forward
	life     atomic.Uint64
	admitted atomic.Uint64 // a life
	longest  time.Duration // of the TTLs of other clients
	valid    time.Duration // for how long it lets its votes count; 0: for the TTL
	forgets  bool          // it is not durable
}

// voters are three nodes in their first life.
func voters() (all []*voter, drivers []driver.Driver) {
	for range 3 {
		v := &voter{Forward: wrap.Forward{Driver: memlock.NewStore(nil).Client()}}
		v.life.Store(1)
		all, drivers = append(all, v), append(drivers, v)
	}
	return all, drivers
}

func (v *voter) Vote(ctx context.Context, r driver.Request, life vote.Life) (driver.Grant, bool, error) {
	g, err := v.Try(ctx, r)
	g.Valid = v.valid
	return g, life == vote.Life(v.life.Load()), err
}

func (v *voter) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	renewals := v.Forward.Renew(ctx, grants)
	for i := range renewals {
		renewals[i].Valid = v.valid
	}
	return renewals
}

func (v *voter) Life(_ context.Context, longest time.Duration) (vote.Life, bool, time.Duration, error) {
	life := v.life.Load()
	return vote.Life(life), life == v.admitted.Load(), max(v.longest, longest), nil
}

func (v *voter) Durable(context.Context) (bool, error) { return !v.forgets, nil }

func (v *voter) Admit(_ context.Context, life vote.Life) error {
	v.admitted.Store(uint64(life))
	return nil
}

// TestRenewedInAnotherLife: P1: A holds a name, and two of three nodes restart without memory. A late request of A
// takes the votes again, in their new life, beside votes for B that they have forgotten. They renew A's votes, which
// must not count yet. No hold counts for longer than its votes do.
func TestRenewedInAnotherLife(t *testing.T) {
	nodes, drivers := voters()
	for _, v := range nodes {
		v.admitted.Store(1)
		v.valid = bound / 2
	}
	w := &world{TB: t}
	d := w.open(drivers, &quorum.Options{NodeTimeout: bound, MaxTTL: 2 * bound})
	g := w.take(d, request("a"))
	if r := w.renew(d, g); r.Err != nil || g.Valid >= bound/2 || r.Valid != g.Valid {
		t.Fatalf("P1: votes count for %v, and the hold for %v, and when it is renewed for %v, %v", bound/2, g.Valid, r.Valid, r.Err)
	}
	for _, v := range nodes[1:] {
		v.life.Store(2)
	}
	if r := w.renew(d, g); r.Err == nil || driver.Gone(r.Err) {
		t.Errorf("renewed by two nodes that may have forgotten another's votes: %v", r.Err)
	}
	for _, v := range nodes[1:] {
		v.admitted.Store(2)
	}
	if r := w.renew(d, g); r.Err != nil {
		t.Errorf("renewed by nodes that count again: %v", r.Err)
	}
	w.release(d, g)
}

// TestLongestOfAll: P1: nodes that may have forgotten votes do not count until the longest TTL of all clients is
// over, although this client's own is shorter.
func TestLongestOfAll(t *testing.T) {
	nodes, drivers := voters()
	for _, v := range nodes {
		v.longest = time.Hour
	}
	w := &world{TB: t}
	d := w.open(drivers, &quorum.Options{MaxTTL: 100 * time.Millisecond, NodeTimeout: bound})
	for _, owner := range []string{"a", "b"} {
		_, err := d.Try(t.Context(), driver.Request{Name: "orders/42", Owner: owner, TTL: 100 * time.Millisecond})
		if !errors.Is(err, driver.ErrHeld) || !strings.Contains(err.Error(), "do not count until 1h0m36") {
			t.Errorf("Try of nodes that are new: %v", err)
		}
		time.Sleep(150 * time.Millisecond) // the client's own longest TTL is over
	}
}

// TestInitInUse: P1: nodes of which one shows a hold are not said to be new. When it is released, they are.
func TestInitInUse(t *testing.T) {
	w := &world{TB: t}
	_, drivers := voters()
	d := w.open(drivers, patient)
	g := w.take(drivers[1], request("a"))
	if err := quorum.Init(t.Context(), d); err == nil || !strings.Contains(err.Error(), `"orders/42" is held`) {
		t.Errorf("Init of nodes in use: %v", err)
	}
	if _, err := d.Try(t.Context(), driver.Request{Name: "x", Owner: "b", TTL: time.Second}); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("after an Init that was refused the nodes count: %v", err)
	}
	w.release(drivers[1], g)
	eventually(t, "Init of nodes from which the votes were withdrawn", func() bool { return quorum.Init(t.Context(), d) == nil })
	w.take(d, request("c"))
}

// silentlyForgetful is a node that may come back without its votes and does not say when.
type silentlyForgetful struct{ driver.Driver }

func (f silentlyForgetful) Caps() driver.Caps {
	c := f.Driver.Caps()
	c.Guarantees.Faults = maps.Clone(c.Guarantees.Faults)
	c.Guarantees.Faults[driver.StoreRestart] = driver.Verdict{Exclusion: driver.Breaks}
	return c
}

// opens returns a node that has this driver.
func opens(name string, d driver.Driver) quorum.Node {
	return quorum.Node{Name: name, Open: func(context.Context) (driver.Driver, error) { return d, nil }}
}

// TestRefusedNodes: P1: a node whose restart could let two have a majority, or that is another one, is refused. One
// that is opened when a majority is there already does not vote, and the error says why.
func TestRefusedNodes(t *testing.T) {
	shared := memlock.NewStore(nil)
	nodes, drivers := voters()
	nodes[2].forgets = true
	for _, c := range []struct {
		says    string
		bad     driver.Driver
		options quorum.Options
	}{
		{"may forget its votes", silentlyForgetful{memlock.NewStore(nil).Client()}, quorum.Options{}},
		{"is the same store as node", shared.Client(), quorum.Options{}},
		{"said to be durable", drivers[2], quorum.Options{Durable: true}},
	} {
		if d, err := quorum.New([]driver.Driver{shared.Client(), c.bad}, &c.options); err == nil {
			d.Close()
			t.Errorf("New takes a node that %s", c.says)
		}
		wire, late := chaos.New(memlock.NewStore(nil).Client(), chaos.Options{}), make(chan struct{})
		three := quorum.Node{Name: "three", Open: func(ctx context.Context) (driver.Driver, error) {
			select {
			case <-late:
				return c.bad, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}}
		d, err := quorum.Open(t.Context(), "s", []quorum.Node{opens("one", shared.Client()), opens("two", wire), three}, &c.options)
		if err != nil {
			t.Fatal(err)
		}
		wire.HoldRequests() // so that no majority is without the third
		close(late)
		eventually(t, "an error that says that the node "+c.says, func() bool {
			_, err := d.Try(t.Context(), driver.Request{Name: "x", Owner: "a", TTL: time.Second})
			if err == nil {
				t.Fatal("the node votes")
			}
			return strings.Contains(err.Error(), c.says)
		})
		wire.ReleaseRequests()
		d.Close()
	}
}

// TestOpenUnderContext: P11: the error of an Open whose context has ended says what is wrong with each node.
func TestOpenUnderContext(t *testing.T) {
	silent := func(ctx context.Context) (driver.Driver, error) { <-ctx.Done(); return nil, ctx.Err() }
	refuses := func(context.Context) (driver.Driver, error) { return nil, errors.New("the password is wrong") }
	nodes := []quorum.Node{{Name: "one", Open: refuses}, {Name: "two", Open: silent}, {Name: "three", Open: silent}}
	wait := time.Millisecond
	eventually(t, "an error that says what is wrong with each node", func() bool {
		wait *= 2
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		_, err := quorum.Open(ctx, "s", nodes, nil)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Open: %v", err)
		}
		return strings.Contains(err.Error(), "node one: the password is wrong") && strings.Contains(err.Error(), "node three: ")
	})
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
	if r, errs := d.Renew(t.Context(), nil), d.Release(t.Context(), nil); len(r)+len(errs) != 0 {
		t.Errorf("renewals and releases of nothing: %v, %v", r, errs)
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
