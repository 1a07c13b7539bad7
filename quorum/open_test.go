package quorum_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/wrap"
	"github.com/holdfastlock/holdfast/memlock"
	"github.com/holdfastlock/holdfast/quorum"
)

// node is a store in memory, of which the tests say some things.
type node struct {
	wrap.Forward
	valid   time.Duration // for how long it lets its votes count; 0: for the TTL
	closed  time.Duration // for how long it grants nothing, because it may have forgotten votes
	forgets bool          // it is not durable
}

// threeNodes are nodes that grant.
func threeNodes() (all []*node, drivers []driver.Driver) {
	for range 3 {
		n := &node{Forward: wrap.Forward{Driver: memlock.NewStore(nil).Client()}}
		all, drivers = append(all, n), append(drivers, n)
	}
	return all, drivers
}

func (n *node) Try(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if n.closed > 0 {
		return driver.Grant{Request: r}, &driver.HeldError{Name: r.Name, Forgotten: n.closed}
	}
	g, err := n.Forward.Try(ctx, r)
	g.Valid = n.valid
	return g, err
}

func (n *node) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	renewals := n.Forward.Renew(ctx, grants)
	for i := range renewals {
		renewals[i].Valid = n.valid
	}
	return renewals
}

func (n *node) Durable(context.Context) (bool, error) { return !n.forgets, nil }

// TestVotesEndEarly: P1: no hold counts for longer than its votes do.
func TestVotesEndEarly(t *testing.T) {
	nodes, drivers := threeNodes()
	for _, n := range nodes {
		n.valid = bound / 2
	}
	w := &world{TB: t}
	d := w.open(drivers, patient)
	g := w.take(d, request("a"))
	if r := w.renew(d, g); r.Err != nil || g.Valid >= bound/2 || r.Valid != g.Valid {
		t.Errorf("votes count for %v, and the hold for %v, and when it is renewed for %v, %v", bound/2, g.Valid, r.Valid, r.Err)
	}
	w.release(d, g)
}

// TestClosedNodes: nodes that may have forgotten votes refuse theirs. Who asks is told when a majority may grant.
func TestClosedNodes(t *testing.T) {
	w := &world{TB: t}
	for _, c := range []struct{ closed, want time.Duration }{{time.Minute, time.Minute}, {time.Hour, time.Hour}, {0, 0}} {
		nodes, drivers := threeNodes()
		nodes[0].closed, nodes[1].closed = c.closed, 2*time.Hour
		d := w.open(drivers, patient)
		_, err := d.Try(t.Context(), request("a"))
		if c.want == 0 {
			if err != nil {
				t.Errorf("Try of two nodes that grant, and one that does not yet: %v", err)
			}
			continue
		}
		held, ok := errors.AsType[*driver.HeldError](err)
		if !ok || held.Forgotten != c.want || held.ExpiresIn != c.want {
			t.Errorf("Try of nodes that grant after %v and %v: %+v, %v", c.closed, 2*time.Hour, held, err)
		}
	}
}

// forgetful is a node that may come back without its votes, and give them again at once.
type forgetful struct{ driver.Driver }

func (f forgetful) Caps() driver.Caps {
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
	nodes, drivers := threeNodes()
	nodes[2].forgets = true
	for _, c := range []struct {
		says    string
		bad     driver.Driver
		options quorum.Options
	}{
		{"may forget its votes", forgetful{memlock.NewStore(nil).Client()}, quorum.Options{}},
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
