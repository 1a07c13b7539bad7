package drivertest

import "github.com/holdfastlock/holdfast/driver"

var fences = driver.Caps{Fencing: true}

var tokensCases = []testCase{
	{name: "increase from hold to hold", need: fences, run: tokensIncrease},
	{name: "increase after the name was idle", need: fences, time: true, run: tokensAfterIdle},
	{name: "increase after expiry", need: fences, time: true, run: tokensAfterExpiry},
	{name: "increase over a hand-off", need: driver.Caps{Fencing: true, Ops: driver.OpQueue}, run: tokensOverHandOff},
	{name: "increase after a break", need: driver.Caps{Fencing: true, Ops: driver.OpBreak}, run: tokensAfterBreak},
	{name: "readers come after the writer", need: driver.Caps{Fencing: true, Shared: true}, run: tokensShared},
	{name: "stay over renewals", need: driver.Caps{Fencing: true, Ops: driver.OpInspect}, run: tokensStay},
}

// higher asserts that a token is greater than the last, and returns it.
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

func tokensAfterExpiry(t *trial) {
	a, b := t.open(), t.open()
	g := t.take(a, t.brief())
	t.outlive(t.ttl)
	t.higher(t.take(b, t.request()), g.Token, "the hold before expired")
}

func tokensOverHandOff(t *trial) {
	a, b := t.open(), t.open()
	g := t.take(a, t.request())
	r := t.request()
	t.queued(b, r)
	t.release(a, g)
	next := t.arrives(b, r, t.poll, "P7: the waiter was not granted the free name")
	last := t.higher(next, g.Token, "the name was handed over")
	t.release(b, next)
	t.higher(t.take(a, t.request()), last, "the hold before was handed over")
}

func tokensAfterBreak(t *trial) {
	a, b := t.open(), t.open()
	g := t.take(a, t.request())
	t.breakHold(b, g)
	t.higher(t.take(b, t.request()), g.Token, "the hold before was broken")
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
	// A guard admits a writer that is not below any reader: equal would do for
	// it, but the next readers must be above the writer.
	w := t.take(b, t.request())
	t.higher(w, max(r1.Token, r2.Token)-1, "a writer after readers")
	t.higher(w, g.Token, "a writer after a writer, readers in between")
	t.release(b, w)
	t.higher(t.take(a, t.shared()), w.Token, "a reader after the second writer")
}

func tokensStay(t *trial) {
	d := t.open()
	g := t.take(d, t.request())
	for range 3 {
		t.renew(d, g)
	}
	for _, h := range t.inspect(d).Holders {
		if h.Owner == g.Owner && h.Token != g.Token {
			t.Errorf("P3: renewals changed the token from %d to %d", g.Token, h.Token)
		}
	}
}
