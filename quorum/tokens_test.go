package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/memlock"
	"github.com/holdfastlock/holdfast/quorum"
)

// durable are options of nodes that forget nothing.
var durable = &quorum.Options{NodeTimeout: bound, Durable: true}

// uneven gives the stores counters that differ widely.
func (w *world) uneven() {
	w.Helper()
	for i, s := range w.stores {
		d := s.Client()
		g, err := d.Try(w.Context(), request("before"))
		if err != nil {
			w.Fatal(err)
		}
		g.Token = driver.Token((i*i*7919)%1000 + 1)
		if r := (driver.Forward{Driver: d}).Raise(w.Context(), []driver.Grant{g})[0]; r.Err != nil {
			w.Fatal(r.Err)
		}
		d.Release(w.Context(), []driver.Grant{g})
		d.Close()
	}
}

// shown returns the token of the one hold that Inspect shows.
func (w *world) shown(d driver.Driver) driver.Token {
	w.Helper()
	info, err := d.(driver.Inspector).Inspect(w.Context(), "orders/42")
	if err != nil || len(info.Holders) != 1 {
		w.Fatalf("Inspect: %+v, %v", info, err)
	}
	return info.Holders[0].Token
}

// TestTokensGrow: P3: the tokens of holds grow, whichever majority of nodes grants each.
func TestTokensGrow(t *testing.T) {
	w := newWorld(t, 5, durable)
	w.uneven()
	if !w.driver.Caps().Fencing {
		t.Fatal("durable nodes have no tokens")
	}
	last := driver.Token(0)
	for i := range 100 {
		away := w.wires[rand.IntN(len(w.wires))]
		away.HoldRequests()
		r := request(fmt.Sprint("owner ", i))
		if i%5 == 4 {
			r.Mode = driver.Shared
		}
		g := w.take(w.driver, r)
		if on := w.tokens(r.Owner); g.Token <= last || g.Block != 1 || count(on, g.Token) < 3 {
			t.Fatalf("P3: turn %d: token %d after %d, a block of %d; the nodes have %v on record", i, g.Token, last, g.Block, on)
		}
		last = g.Token
		if i%2 == 0 {
			if r := w.driver.Renew(t.Context(), []driver.Grant{g})[0]; r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		w.release(w.driver, g)
		away.ReleaseRequests()
		w.eventually(r.Owner, 0)
	}
}

func count(tokens []driver.Token, token driver.Token) (n int) {
	for _, t := range tokens {
		if t == token {
			n++
		}
	}
	return n
}

// TestTokenOfAHold: Inspect shows a hold's token, by which it is broken, also when nodes that voted late or
// have restored their votes had others. Each renewal records it at all of them.
func TestTokenOfAHold(t *testing.T) {
	w := newWorld(t, 5, durable)
	w.uneven()
	w.wires[1].HoldRequests()
	w.wires[3].HoldRequests()
	g := w.take(w.driver, request("a"))
	w.wires[1].ReleaseRequests()
	w.wires[3].ReleaseRequests()
	w.eventually("a", 5)
	if token := w.shown(w.other); token != g.Token {
		t.Errorf("Inspect shows token %d, the grant has %d, the nodes %v", token, g.Token, w.tokens("a"))
	}
	for i := range w.stores {
		w.stores[i].Advance(2 * bound) // the vote ends
		for range 2 {                  // to restore it, and to record the token
			if r := w.driver.Renew(t.Context(), []driver.Grant{g})[0]; r.Err != nil {
				t.Fatalf("renewal after node %d lost its vote: %v", i, r.Err)
			}
			w.eventually("a", 5)
		}
		// A renewal waits for a majority, and the others record the token a moment later.
		await(t, "P3: all nodes have the token on record", func() bool { return count(w.tokens("a"), g.Token) == 5 })
	}
	if err := w.other.(driver.Breaker).Break(t.Context(), g.Name, g.Token-1); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("P4: Break by another token: %v", err)
	}
	if err := w.other.(driver.Breaker).Break(t.Context(), g.Name, g.Token); err != nil {
		t.Errorf("Break: %v", err)
	}
	if r := w.driver.Renew(t.Context(), []driver.Grant{g})[0]; !errors.Is(r.Err, driver.ErrBroken) {
		t.Errorf("renewal of a broken hold: %+v", r)
	}
	if next := w.take(w.other, request("b")); next.Token <= g.Token {
		t.Errorf("P3: token %d after %d", next.Token, g.Token)
	}
}

// halting is a store in memory that does not raise tokens until it is told to go on.
type halting struct {
	driver.Forward
	asked chan struct{}
	goOn  chan struct{}
	raise func(context.Context, []driver.Grant) []driver.Renewal
}

func (h *halting) Raise(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	h.asked <- struct{}{}
	<-h.goOn
	return h.raise(ctx, grants)
}

// halt returns a quorum over nodes that do not record tokens until goOn is closed.
func (w *world) halt(o *quorum.Options) (d driver.Driver, asked, goOn chan struct{}) {
	asked, goOn = make(chan struct{}, len(w.stores)), make(chan struct{})
	var drivers []driver.Driver
	for _, s := range w.stores {
		node := driver.Forward{Driver: s.Client()}
		drivers = append(drivers, &halting{node, asked, goOn, node.Raise})
	}
	return w.open(drivers, o), asked, goOn
}

// TestGivenUpWhileWriting: P6: a caller gives up when a majority has voted, and the token is not on
// record yet. No vote is left, also when the nodes are told of the token after that.
func TestGivenUpWhileWriting(t *testing.T) {
	w := newWorld(t, 3, durable)
	w.uneven()
	d, asked, goOn := w.halt(durable)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		<-asked
		cancel()
	}()
	g, err := d.Try(ctx, request("a"))
	if !errors.Is(err, driver.ErrUncertain) || !errors.Is(err, context.Canceled) {
		t.Fatalf("Try: %v, want ErrUncertain and Canceled", err)
	}
	w.eventually("a", 0)
	close(goOn)
	if err := d.Release(t.Context(), []driver.Grant{g})[0]; err != nil && !driver.Gone(err) {
		t.Errorf("Release: %v", err)
	}
	next := w.take(d, request("b"))
	w.eventually("a", 0)
	w.release(d, next)
}

// TestSlowToWrite: P6: nodes vote, and do not record the token in time. The attempt fails, and no vote is left.
func TestSlowToWrite(t *testing.T) {
	w := newWorld(t, 3, durable)
	w.uneven()
	d, _, goOn := w.halt(&quorum.Options{Durable: true, NodeTimeout: 50 * time.Millisecond})
	defer close(goOn)
	if _, err := d.Try(t.Context(), request("a")); !errors.Is(err, driver.ErrUncertain) {
		t.Errorf("Try: %v, want ErrUncertain", err)
	}
	w.eventually("a", 0)
}

// lacking is a node whose Caps lack something.
type lacking struct {
	driver.Forward
	caps driver.Caps
}

func (l lacking) Caps() driver.Caps { return l.caps }

// TestNoTokens: P3: locks have tokens only of nodes that forget nothing, and that all can raise tokens.
func TestNoTokens(t *testing.T) {
	without := func(change func(*driver.Caps)) driver.Driver {
		d := memlock.NewStore(nil).Client()
		caps := d.Caps()
		change(&caps)
		return lacking{driver.Forward{Driver: d}, caps}
	}
	nodes := func(last driver.Driver) []driver.Driver {
		return []driver.Driver{memlock.NewStore(nil).Client(), memlock.NewStore(nil).Client(), last}
	}
	w := &world{TB: t}
	for what, c := range map[string]struct {
		nodes   []driver.Driver
		options *quorum.Options
		tokens  bool
	}{
		"durable":                  {nodes(memlock.NewStore(nil).Client()), durable, true},
		"may forget":               {nodes(memlock.NewStore(nil).Client()), patient, false},
		"a node without tokens":    {nodes(without(func(c *driver.Caps) { c.Fencing = false })), durable, false},
		"a node that cannot raise": {nodes(without(func(c *driver.Caps) { c.Ops &^= driver.OpRaise })), durable, false},
		"a node without slots":     {nodes(without(func(c *driver.Caps) { c.Slots = false })), durable, true},
	} {
		d := w.open(c.nodes, c.options)
		g := w.take(d, request("a"))
		if d.Caps().Fencing != c.tokens || (g.Token != 0) != c.tokens {
			t.Errorf("%s: Fencing is %t, and a grant has token %d", what, d.Caps().Fencing, g.Token)
		}
		if r := d.Renew(t.Context(), []driver.Grant{g})[0]; r.Err != nil {
			t.Errorf("%s: renewal: %v", what, r.Err)
		}
		w.release(d, g)
	}
}

// TestAbsurdTokens: a node that gives a token out of range does not count, and gets its vote back.
func TestAbsurdTokens(t *testing.T) {
	for _, token := range []driver.Token{-1, 0, 1<<53 - 1, 1 << 60} {
		w := newWorld(t, 3, durable)
		drivers := []driver.Driver{odd{driver.Forward{Driver: w.stores[0].Client()}, func(g *driver.Grant) { g.Token = token }}}
		for _, s := range w.stores[1:] {
			drivers = append(drivers, s.Client())
		}
		d := w.open(drivers, durable)
		g := w.take(d, request("a"))
		if g.Token <= 0 || g.Token > 1000 {
			t.Errorf("a node gave token %d, and the grant has %d", token, g.Token)
		}
		w.release(d, g)
		w.eventually("a", 0)
	}
}
