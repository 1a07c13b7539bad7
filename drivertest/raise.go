package drivertest

import (
	"errors"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/wrap"
)

var raises = needs{Fencing: true, can: opRaise}

// raiseCases are about tokens that another store has chosen.
var raiseCases = []testCase{
	{name: "the next token is higher", need: raises, run: raiseThenNext},
	{name: "the next token is higher after expiry", need: raises, run: raiseThenExpiry, time: true},
	{name: "is shown and broken by", need: needs{Fencing: true, can: raises.can | opOperator}, run: raiseShows},
	{name: "of one of several readers", need: needs{Fencing: true, Shared: true, can: raises.can | opOperator}, run: raiseReader},
	{name: "extends the hold", need: raises, run: raiseExtends, time: true},
	{name: "checks the owner", need: raises, run: raiseOwner},
	{name: "never revives", need: raises, run: raiseExpired, time: true},
}

// raise1 raises one hold to the token of its grant.
func (t *trial) raise1(d driver.Driver, g driver.Grant) driver.Renewal {
	t.Helper()
	out := (wrap.Forward{Driver: d}).Raise(t.ctx, []driver.Grant{g})
	if len(out) != 1 {
		t.Fatalf("P2: Raise of one grant returned %d renewals", len(out))
	}
	if r, now := out[0], t.clock.Now(); r.Since > now || r.Valid > g.TTL {
		t.Errorf("P2: Raise at %v of a hold with the TTL %v: %+v", now, g.TTL, r)
	}
	return out[0]
}

// raise gives a hold another token, and returns its grant.
func (t *trial) raise(d driver.Driver, g driver.Grant, token driver.Token) driver.Grant {
	t.Helper()
	g.Token, g.Raised = token, true
	if r := t.raise1(d, g); r.Err != nil {
		t.Fatalf("P3: Raise of a live hold: %v", r.Err)
	}
	return g
}

// raiseThenNext raises a hold to tokens above and below its own, and tries to release it by either.
func raiseThenNext(t *trial) {
	a, b := t.open(), t.open()
	var last driver.Token
	for _, by := range []driver.Token{1_000_000, 0, -1, 10_000_000} {
		for _, r := range []driver.Request{t.request(), t.block(7)} {
			g := t.take(a, r)
			last = t.higher(g, last, "the hold before was raised")
			raised := t.raise(a, g, g.Token+by)
			last = max(last, raised.Token)
			t.release(a, raised)
			t.freeNow(b, t.request(), "P4: a hold that was raised was not freed by its release")
		}
	}
}

func raiseThenExpiry(t *trial) {
	a, b := t.open(), t.open()
	g := t.take(a, t.brief())
	raised := g
	raised.Token, raised.Raised = g.Token+60_000_000, true
	if r := t.raise1(a, raised); driver.Gone(r.Err) {
		raised = g // this machine stood still until the hold had expired
	}
	t.outlive(t.ttl)
	t.higher(t.take(b, t.request()), raised.Token, "the hold before was raised, and expired")
}

func raiseShows(t *trial) {
	a, b := t.open(), t.open()
	g := t.take(a, t.request())
	raised := g
	for _, by := range []driver.Token{1000, -1, 500, 500} {
		raised = t.raise(a, g, g.Token+by)
		if h := t.inspect(b).Holders; len(h) != 1 || h[0].Token != raised.Token || h[0].Owner != g.Owner {
			t.Fatalf("P3: a hold was raised from %d by %d, and Inspect shows %+v", g.Token, by, h)
		}
	}
	t.renew(a, raised)
	if h := t.inspect(b).Holders; len(h) != 1 || h[0].Token != raised.Token {
		t.Errorf("P3: a hold with token %d was renewed, and Inspect shows %+v", raised.Token, h)
	}
	if err := t.break1(b, t.name, g.Token); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("P4: a break by the token before: %v, not ErrNotHeld", err)
	}
	t.breakHold(b, raised)
	t.higher(t.take(b, t.request()), g.Token+1000, "the hold before was raised, and broken")
}

func raiseReader(t *trial) {
	a, b := t.open(), t.open()
	first, second := t.take(a, t.shared()), t.take(b, t.shared())
	raised := t.raise(a, first, second.Token+1000)
	want := map[string]driver.Token{first.Owner: raised.Token, second.Owner: second.Token}
	for _, h := range t.inspect(b).Holders {
		if h.Token != want[h.Owner] {
			t.Errorf("P3: a reader was raised, and one with token %d is shown with %d", want[h.Owner], h.Token)
		}
	}
	t.release(a, raised)
	t.release(b, second)
	t.higher(t.take(b, t.request()), raised.Token, "a reader before was raised")
}

func raiseExtends(t *trial) {
	t.extends(func(d driver.Driver, g driver.Grant) driver.Renewal {
		g.Token, g.Raised = g.Token+1, true
		return t.raise1(d, g)
	})
}

func raiseOwner(t *trial) {
	a, b := t.open(), t.open()
	g := t.take(a, t.request())
	other := stranger(g)
	other.Token, other.Raised = g.Token+1_000_000, true
	if r := t.raise1(b, other); !driver.Gone(r.Err) {
		t.Errorf("P4: Raise by another owner: %+v", r)
	}
	t.release(a, g)
	if r := t.raise1(a, g); !driver.Gone(r.Err) {
		t.Errorf("P1: Raise of a hold that was released: %+v", r)
	}
	t.freeNow(b, t.request(), "P1: Raise has taken the name")
}

func raiseExpired(t *trial) {
	a, b := t.open(), t.open()
	g := t.take(a, t.brief())
	t.outlive(t.ttl)
	if r := t.raise1(a, g); !driver.Gone(r.Err) {
		t.Errorf("P1: Raise of a hold that has ended: %+v", r)
	}
	t.freeNow(b, t.request(), "P1: Raise has revived a hold")
}
