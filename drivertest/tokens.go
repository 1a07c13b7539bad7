package drivertest

import (
	"github.com/holdfastlock/holdfast/driver"
)

// tokensCases are about fencing tokens (P3), and about those that are reserved for a hold (Request.Tokens,
// Grant.Block). Package holdfast asks for Caps.TokenBlock tokens if others in its process wait for the name. Each of
// those that the hold is handed over to inside the process uses the next token of the block.
var tokensCases = []testCase{
	{name: "increase from hold to hold", need: opFencing, run: func(t *trial, a, b driver.Driver) {
		var last driver.Token
		for i := range 20 {
			d := []driver.Driver{a, b}[i%2]
			g := t.take(d, t.request())
			t.higher(g, last, "a later hold has no higher token")
			last = g.Token
			t.release(d, g)
		}
	}},
	{name: "increase after the name was idle", need: opFencing, time: true, run: func(t *trial, a, b driver.Driver) {
		g := t.take(a, t.request())
		t.release(a, g)
		t.pass(2 * t.ttl)
		t.higher(t.take(b, t.request()), g.Token, "the name was idle in between")
	}},
	{name: "readers come after the writer", need: opFencing | opShared, run: func(t *trial, a, b driver.Driver) {
		g := t.take(a, t.request())
		t.release(a, g)
		r1, r2 := t.take(a, t.shared()), t.take(b, t.shared())
		t.after(r1, g, "a reader after a writer")
		t.after(r2, g, "a second reader after a writer")
		t.release(a, r1)
		t.release(b, r2)
		w := t.take(b, t.request())
		t.after(w, r1, "a writer after a reader")
		t.after(w, r2, "a writer after another reader")
		t.after(w, g, "a writer after a writer, readers in between")
		t.release(b, w)
		t.after(t.take(a, t.shared()), w, "a reader after the second writer")
	}},
	{name: "no more are reserved than were asked for", need: opFencing, run: func(t *trial, a, _ driver.Driver) {
		for _, tokens := range []int{0, 1, 2, t.caps.TokenBlock} {
			r := t.block(tokens)
			if tokens == 0 {
				r.Tokens = 0
			}
			g := t.take(a, r)
			if g.Block < 0 || g.Block > max(1, r.Tokens) {
				t.Errorf("P3: %d tokens were asked for, and the grant has a block of %d", r.Tokens, g.Block)
			}
			t.release(a, g)
		}
	}},
	{name: "increase after a block that was used in part", need: opFencing, run: func(t *trial, a, b driver.Driver) {
		for _, tokens := range []int{2, 7, t.caps.TokenBlock} {
			used := usedInPart(t.take(a, t.block(tokens)))
			t.release(a, used)
			g := t.take(b, t.request())
			t.higher(g, used.Token, "the release told the last token that was used of a block")
			t.release(b, g)
		}
	}},
	{name: "increase over a hand-off after a block that was used in part", need: opFencing | opQueue, run: func(t *trial, a, b driver.Driver) {
		used, r := usedInPart(t.take(a, t.block(7))), t.request()
		t.queued(b, r)
		t.release(a, used)
		g := t.arrives(b, r, "P7: the waiter was not granted the free name")
		t.higher(g, used.Token, "the release told the last token that was used of a block, and the name was handed over")
	}},
	// The store does not know how many tokens of a dead holder's block were used, so all of them count as used.
	{name: "increase after a block whose holder died", need: opFencing, time: true, run: func(t *trial, a, b driver.Driver) {
		g := t.take(a, t.brief(t.block(7)))
		t.outlive(t.ttl)
		t.higher(t.take(b, t.request()), lastOf(g), "the hold before died, and may have used its whole block")
	}},
	// A renewal tells the store of a hand-over inside the process.
	{name: "of a block are nobody else's", need: opFencing | opOperator, run: func(t *trial, a, b driver.Driver) {
		g := t.take(a, t.block(t.caps.TokenBlock))
		late, passed := g, g
		passed.Token = lastOf(g)
		late.HandedOver, passed.HandedOver = passed.Token > g.Token, passed.Token > g.Token
		passed = t.renew(a, passed)
		t.showsToken(b, passed, "a hold that was handed over is renewed")
		t.renew(a, late)
		t.showsToken(b, passed, "a renewal was overtaken by one with a higher token")
		t.renew(a, passed)
		if t.can(opOperator) && passed.Token > g.Token {
			t.breaksNothing(b, g.Token, "P4: a break with the token from before the hand-over")
		}
		t.release(a, passed)
		g = t.take(b, t.request())
		t.higher(g, passed.Token, "the hold before was handed over and renewed")
		t.release(b, g)
		if t.can(opOperator) {
			g = t.take(a, t.block(t.caps.TokenBlock))
			t.breakHold(b, g)
			t.higher(t.take(b, t.request()), lastOf(g), "the hold before was broken, and may have been handed over before")
		}
	}},
}

// higher asserts that a grant's token is higher than the last.
func (t *trial) higher(g driver.Grant, last driver.Token, why string) {
	t.Helper()
	if g.Token <= last {
		t.Errorf("P3: %s: token %d after %d", why, g.Token, last)
	}
}

// block asks for a hold with n tokens, or as many as Caps.TokenBlock allows.
func (t *trial) block(n int) driver.Request {
	r := t.request()
	r.Tokens = max(1, min(n, t.caps.TokenBlock))
	return r
}

// lastOf is the last token that a grant may use.
func lastOf(g driver.Grant) driver.Token { return g.Token + driver.Token(max(1, g.Block)) - 1 }

// usedInPart is a grant as package holdfast releases it when about half of its block was used.
func usedInPart(g driver.Grant) driver.Grant {
	used := g.Token + (lastOf(g)-g.Token+1)/2
	g.HandedOver, g.Token = used > g.Token, used
	return g
}

// showsToken asserts that Inspect shows the token of the only hold.
func (t *trial) showsToken(d driver.Driver, g driver.Grant, why string) {
	t.Helper()
	if h := t.inspect(d).Holders; len(h) != 1 || h[0].Token != g.Token || h[0].Owner != g.Owner {
		t.Errorf("P3: %s, and Inspect shows %+v, not token %d", why, h, g.Token)
	}
}
