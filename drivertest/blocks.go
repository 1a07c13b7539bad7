package drivertest

import "github.com/holdfastlock/holdfast/driver"

// blocksCases are about tokens that are reserved for a hold (Request.Tokens,
// Grant.Block). Package holdfast asks for one token, unless others in its process wait
// for the name; then it asks for Caps.TokenBlock, and each of the others that the hold
// is handed over to inside the process uses the next token of the block.
var blocksCases = []testCase{
	{name: "no more are reserved than were asked for", need: fences, run: blockAsAskedFor},
	{name: "increase after a block that was used in part", need: fences, run: blockUsedInPart},
	{name: "increase over a hand-off after a block that was used in part",
		need: needs{Fencing: true, can: opQueue}, run: blockUsedInPartThenHandOff},
	{name: "increase after a block whose holder died", need: fences, time: true, run: blockOfTheDead},
}

// block asks for a hold with n tokens, or as many as Caps.TokenBlock allows.
func (t *trial) block(n int) driver.Request {
	r := t.request()
	r.Tokens = max(1, min(n, t.caps.TokenBlock))
	return r
}

// lastOf is the last token that a grant may use.
func lastOf(g driver.Grant) driver.Token { return g.Token + driver.Token(max(1, g.Block)) - 1 }

func blockAsAskedFor(t *trial) {
	d := t.open()
	for _, tokens := range []int{0, 1, 2, t.caps.TokenBlock} {
		r := t.block(tokens)
		if tokens == 0 {
			r.Tokens = 0
		}
		g := t.take(d, r)
		if g.Block < 0 || g.Block > max(1, r.Tokens) {
			t.Errorf("P3: %d tokens were asked for, and the grant has a block of %d", r.Tokens, g.Block)
		}
		t.release(d, g)
	}
}

// usedInPart is a grant as package holdfast releases it when the hold was handed over
// inside the process, so that about half of its block was used.
func usedInPart(g driver.Grant) driver.Grant {
	used := g.Token + (lastOf(g)-g.Token+1)/2
	g.HandedOver, g.Token = used > g.Token, used
	return g
}

func blockUsedInPart(t *trial) {
	a, b := t.open(), t.open()
	for _, tokens := range []int{2, 7, t.caps.TokenBlock} {
		used := usedInPart(t.take(a, t.block(tokens)))
		t.release(a, used)
		g := t.take(b, t.request())
		t.higher(g, used.Token, "the release told the last token that was used of a block")
		t.release(b, g)
	}
}

func blockUsedInPartThenHandOff(t *trial) {
	a, b := t.open(), t.open()
	used := usedInPart(t.take(a, t.block(7)))
	r := t.request()
	t.queued(b, r)
	t.release(a, used)
	g := t.arrives(b, r, t.poll, "P7: the waiter was not granted the free name")
	t.higher(g, used.Token,
		"the release told the last token that was used of a block, and the name was handed over")
}

// blockOfTheDead: a holder dies. The store does not know how many tokens of its block were
// used, so all of them count as used.
func blockOfTheDead(t *trial) {
	a, b := t.open(), t.open()
	r := t.block(7)
	r.TTL = t.ttl
	g := t.take(a, r)
	t.outlive(t.ttl)
	t.higher(t.take(b, t.request()), lastOf(g), "the hold before died, and may have used its whole block")
}
