package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// tokens returns the tokens that the stores have on record for the owner's hold, 0 where it has none.
func (w *world) tokens(owner string) (tokens []driver.Token) {
	w.Helper()
	for _, s := range w.stores {
		d := s.Client()
		info, err := d.(driver.Operator).Inspect(w.Context(), "orders/42")
		if err != nil {
			w.Fatal(err)
		}
		token := driver.Token(0)
		for _, h := range info.Holders {
			if h.Owner == owner {
				token = h.Token
			}
		}
		tokens = append(tokens, token)
		d.Close()
	}
	return tokens
}

// shown returns the token of the one hold that Inspect shows.
func (w *world) shown(d driver.Driver) driver.Token {
	w.Helper()
	info, err := d.(driver.Operator).Inspect(w.Context(), "orders/42")
	if err != nil || len(info.Holders) != 1 {
		w.Fatalf("Inspect: %+v, %v", info, err)
	}
	return info.Holders[0].Token
}

// TestTokensGrow: P3: the tokens of holds grow, whichever majority of nodes grants each.
func TestTokensGrow(t *testing.T) {
	w := newWorld(t, 5, &quorum.Options{Durable: true, NodeTimeout: time.Second})
	w.uneven()
	if !w.driver.Caps().Fencing {
		t.Fatal("durable nodes have no tokens")
	}
	last := driver.Token(0)
	for i := range 200 {
		// One node at a time: those of the turns before may still have votes that are being withdrawn.
		away := rand.Perm(len(w.wires))[:rand.IntN(2)]
		for _, n := range away {
			w.wires[n].HoldRequests()
		}
		r := request(fmt.Sprint("owner ", i))
		if i%5 == 4 {
			r.Mode = driver.Shared
		}
		g, err := w.driver.Try(t.Context(), r)
		for n := 0; n < 10 && errors.Is(err, driver.ErrHeld); n++ { // by two nodes of turns before, and one is away now
			r.Owner = fmt.Sprint("owner ", i, ", again ", n)
			g, err = w.driver.Try(t.Context(), r)
		}
		if err != nil {
			t.Fatal(err)
		}
		if g.Token <= last {
			t.Fatalf("P3: turn %d, without nodes %v: token %d after %d", i, away, g.Token, last)
		}
		last = g.Token
		if g.Block != 1 {
			t.Errorf("P3: a block of %d", g.Block)
		}
		if on := w.tokens(r.Owner); count(on, g.Token) < 3 {
			t.Fatalf("P3: turn %d: token %d is granted, and the nodes have %v on record", i, g.Token, on)
		}
		if i%2 == 0 {
			if r := w.driver.Renew(t.Context(), []driver.Grant{g})[0]; r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		w.release(w.driver, g)
		for _, n := range away {
			w.wires[n].ReleaseRequests()
		}
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
		for end := time.Now().Add(bound); count(w.tokens("a"), g.Token) != 5; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("P3: after a renewal of token %d the nodes have %v", g.Token, w.tokens("a"))
			}
		}
	}
	if err := w.other.(driver.Operator).Break(t.Context(), g.Name, g.Token-1); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("P4: Break by another token: %v", err)
	}
	if err := w.other.(driver.Operator).Break(t.Context(), g.Name, g.Token); err != nil {
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
	wrap.Forward
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
		node := wrap.Forward{Driver: s.Client()}
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

// TestLostWhileWriting: P3: a node has lost its vote when it is told the token. It does not record it, so there is no
// majority, and no grant.
func TestLostWhileWriting(t *testing.T) {
	w := newWorld(t, 3, durable)
	w.uneven()
	d, asked, goOn := w.halt(durable)
	done := make(chan error)
	go func() {
		_, err := d.Try(context.Background(), request("a"))
		done <- err
	}()
	<-asked
	w.eventually("a", 3)
	for _, s := range w.stores {
		s.Advance(2 * bound) // all votes end
	}
	close(goOn)
	if err := <-done; err == nil || driver.Gone(err) {
		t.Errorf("Try of a name whose votes had ended before the token was on record: %v", err)
	}
	w.eventually("a", 0)
}

// lacking is a node whose Caps lack something.
type lacking struct {
	wrap.Forward
	caps driver.Caps
}

func (l lacking) Caps() driver.Caps { return l.caps }

// TestNoTokens: P3: locks have tokens only of nodes that forget nothing, and that all can raise tokens.
func TestNoTokens(t *testing.T) {
	without := func(change func(*driver.Caps)) driver.Driver {
		d := memlock.NewStore(nil).Client()
		caps := d.Caps()
		change(&caps)
		return lacking{wrap.Forward{Driver: d}, caps}
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
		"a node that cannot raise": {nodes(struct{ driver.Driver }{memlock.NewStore(nil).Client()}), durable, false},
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

// absurd is a node that gives an absurd token.
type absurd struct {
	wrap.Forward
	token driver.Token
}

func (a absurd) Try(ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, err := a.Forward.Try(ctx, r)
	g.Token = a.token
	return g, err
}

// TestAbsurdTokens: a node that gives a token out of range does not count, and gets its vote back.
func TestAbsurdTokens(t *testing.T) {
	for _, token := range []driver.Token{-1, 0, 1<<53 - 1, 1 << 60} {
		w := newWorld(t, 3, durable)
		drivers := []driver.Driver{absurd{wrap.Forward{Driver: w.stores[0].Client()}, token}}
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
