package drivertest

import (
	"errors"

	"github.com/holdfastlock/holdfast/driver"
)

var fences = needs{Fencing: true}

var tokensCases = []testCase{
	{name: "increase from hold to hold", need: fences, run: tokensIncrease},
	{name: "increase after the name was idle", need: fences, time: true, run: tokensAfterIdle},
	{name: "readers come after the writer", need: needs{Fencing: true, Shared: true},
		run: tokensShared},
	{name: "of a block are nobody else's", need: needs{Fencing: true, can: opOperator},
		run: tokensOfABlock},
}

// higher asserts that a grant's token is higher than the last, and returns it.
func (t *trial) higher(g driver.Grant, last driver.Token, why string) driver.Token {
	t.Helper()
	if g.Token <= last {
		t.Errorf("P3: %s: token %d after %d", why, g.Token, last)
	}
	return g.Token
}

func tokensIncrease(t *trial) {
	clients := []driver.Driver{t.open(), t.open()}
	var last driver.Token
	for i := range 20 {
		d := clients[i%2]
		g := t.take(d, t.request())
		last = t.higher(g, last, "a later hold has no higher token")
		t.release(d, g)
	}
}

func tokensAfterIdle(t *trial) {
	a, b := t.open(), t.open()
	g := t.take(a, t.request())
	t.release(a, g)
	t.pass(2 * t.ttl)
	t.higher(t.take(b, t.request()), g.Token, "the name was idle in between")
}

func tokensShared(t *trial) {
	a, b := t.open(), t.open()
	g := t.take(a, t.request())
	t.release(a, g)
	last := g.Token
	r1, r2 := t.take(a, t.shared()), t.take(b, t.shared())
	t.higher(r1, last, "a reader after a writer")
	t.higher(r2, last, "a second reader after a writer")
	t.release(a, r1)
	t.release(b, r2)
	// A guard admits a writer whose token is not lower than any reader's. So it may equal the
	// last reader's; but the tokens of the next readers must be higher than the writer's.
	w := t.take(b, t.request())
	t.higher(w, max(r1.Token, r2.Token)-1, "a writer after readers")
	t.higher(w, g.Token, "a writer after a writer, readers in between")
	t.release(b, w)
	t.higher(t.take(a, t.shared()), w.Token, "a reader after the second writer")
}

// tokensOfABlock hands a hold over inside the process, as package holdfast does: under the same
// owner, with the next token of the block.
func tokensOfABlock(t *trial) {
	a, b := t.open(), t.open()
	block := driver.Token(max(1, t.caps.TokenBlock))
	wide := func() driver.Request { // as if others in the process waited
		r := t.request()
		r.Tokens = int(block)
		return r
	}
	shows := func(want driver.Token, why string) {
		t.Helper()
		if holders := t.inspect(b).Holders; len(holders) != 1 || holders[0].Token != want {
			t.Errorf("P3: %s: Inspect shows %+v, not token %d", why, holders, want)
		}
	}
	next := func(last driver.Token, why string) driver.Grant {
		t.Helper()
		g := t.take(b, t.request())
		t.higher(g, last, why)
		return g
	}
	g := t.take(a, wide())
	if g.Block < 1 || driver.Token(g.Block) > block {
		t.Errorf("P3: of %d tokens that were asked for the grant has %d", block, g.Block)
	}
	block = max(1, driver.Token(g.Block))
	last := g
	last.Token, last.HandedOver = g.Token+block-1, block > 1
	t.release(a, last) // handed over until the block was used up, without a renewal in between
	g = next(last.Token, "the hold before had a block of tokens, and all were used")
	if g.Block > 1 {
		t.Errorf("P3: one token was asked for, and the grant has %d", g.Block)
	}
	t.release(b, g)

	g = t.take(a, wide())
	passed := g
	passed.Token, passed.HandedOver = g.Token+block-1, block > 1
	passed = t.renew(a, passed)
	shows(passed.Token, "a hold that was handed over is renewed")
	late := g
	late.HandedOver = block > 1
	t.renew(a, late)
	shows(passed.Token, "a renewal overtaken by one with a higher token")
	t.renew(a, passed)
	if block > 1 && t.can.has(opOperator) {
		if err := t.break1(b, t.name, g.Token); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("P4: a break with the token from before the hand-over: %v, not ErrNotHeld", err)
		}
	}
	t.release(a, passed)
	g = next(passed.Token, "the hold before was handed over and renewed")
	t.release(b, g)

	if t.can.has(opOperator) {
		g = t.take(a, wide())
		t.breakHold(b, g)
		next(g.Token+block-1, "the hold before was broken, and may have been handed over before")
	}
}
