package quorum_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/wrap"
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
		if r := (wrap.Forward{Driver: d}).Raise(w.Context(), []driver.Grant{g})[0]; r.Err != nil {
			w.Fatal(r.Err)
		}
		d.Release(w.Context(), []driver.Grant{g})
		d.Close()
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
	w.votes("a", 5)
	if holders := w.shown(w.other); len(holders) != 1 || holders[0].Token != g.Token {
		t.Errorf("Inspect shows %+v, the grant has token %d, the nodes %v", holders, g.Token, w.tokens("a"))
	}
	for i := range w.stores {
		w.stores[i].Advance(2 * bound) // the vote ends
		for range 2 {                  // to restore it, and to record the token
			if r := w.renew(w.driver, g); r.Err != nil {
				t.Fatalf("renewal after node %d lost its vote: %v", i, r.Err)
			}
			w.votes("a", 5)
		}
		// A renewal waits for a majority, and the others record the token a moment later.
		eventually(t, "all nodes have the token", func() bool { return count(w.tokens("a"), g.Token) == 5 })
	}
	for token, want := range map[driver.Token]error{g.Token - 1: driver.ErrNotHeld, g.Token: nil} {
		if err := w.other.(driver.Operator).Break(t.Context(), g.Name, token); !errors.Is(err, want) {
			t.Errorf("P4: Break of token %d by %d: %v, want %v", g.Token, token, err, want)
		}
	}
	if next := w.take(w.other, request("b")); next.Token <= g.Token {
		t.Errorf("P3: token %d after %d", next.Token, g.Token)
	}
}

// halting is a store in memory that does not raise tokens until it is told to go on.
type halting struct {
	wrap.Forward
	asked chan struct{}
	goOn  chan struct{}
}

func (h *halting) Raise(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	h.asked <- struct{}{}
	<-h.goOn
	return h.Forward.Raise(ctx, grants)
}

// TestGivenUpWhileWriting: P6: a caller gives up, or the nodes are too slow, when a majority has voted, and the token
// is not on record yet. No vote is left, also when the nodes are told of the token after that.
func TestGivenUpWhileWriting(t *testing.T) {
	for what, o := range map[string]*quorum.Options{
		"the caller gives up":    durable,
		"the nodes are too slow": {Durable: true, NodeTimeout: 50 * time.Millisecond},
	} {
		w := newWorld(t, 3, durable)
		w.uneven()
		asked, goOn := make(chan struct{}, len(w.stores)), make(chan struct{})
		var drivers []driver.Driver
		for _, s := range w.stores {
			drivers = append(drivers, &halting{wrap.Forward{Driver: s.Client()}, asked, goOn})
		}
		d := w.open(drivers, o)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			if <-asked; o == durable {
				cancel()
			}
		}()
		g, err := d.Try(ctx, request("a"))
		if !errors.Is(err, driver.ErrUncertain) || o == durable && !errors.Is(err, context.Canceled) {
			t.Fatalf("%s: Try: %v, want ErrUncertain", what, err)
		}
		w.votes("a", 0)
		close(goOn)
		if err := d.Release(t.Context(), []driver.Grant{g})[0]; err != nil && !driver.Gone(err) {
			t.Errorf("%s: Release: %v", what, err)
		}
		next := w.take(w.other, request("b"))
		w.votes("a", 0)
		w.release(w.other, next)
	}
}

// tokenless is a node without tokens.
type tokenless struct{ wrap.Forward }

func (n tokenless) Caps() driver.Caps {
	c := n.Driver.Caps()
	c.Fencing = false
	return c
}

// TestNoTokens: P3: locks have tokens only of nodes that forget nothing, and that all can raise tokens.
func TestNoTokens(t *testing.T) {
	w := &world{TB: t}
	for what, c := range map[string]struct {
		last    driver.Driver
		options *quorum.Options
		tokens  bool
	}{
		"durable":                  {memlock.NewStore(nil).Client(), durable, true},
		"may forget":               {memlock.NewStore(nil).Client(), patient, false},
		"a node without tokens":    {tokenless{wrap.Forward{Driver: memlock.NewStore(nil).Client()}}, durable, false},
		"a node that cannot raise": {struct{ driver.Driver }{memlock.NewStore(nil).Client()}, durable, false},
	} {
		d := w.open([]driver.Driver{memlock.NewStore(nil).Client(), memlock.NewStore(nil).Client(), c.last}, c.options)
		g := w.take(d, request("a"))
		if d.Caps().Fencing != c.tokens || (g.Token != 0) != c.tokens {
			t.Errorf("%s: Fencing is %t, and a grant has token %d", what, d.Caps().Fencing, g.Token)
		}
		if r := w.renew(d, g); r.Err != nil {
			t.Errorf("%s: renewal: %v", what, r.Err)
		}
		w.release(d, g)
	}
}
